"""An archive of LibriTTS-R read as a stream: its layout, its damages, and members that escape."""

from __future__ import annotations

import gzip
import io
import tarfile
import tracemalloc
from typing import TYPE_CHECKING

import pytest
from published import Member, clip_id, members_of, tar_gz

from speech_assets.corpus import tar_members, tarball
from speech_assets.corpus.tarball import SpooledSplit, spool_archive
from speech_assets.errors import CorpusError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SPLIT = "dev-clean"
WAVS = [bytes([number]) * (2_000 + number) for number in range(9)]
FOLDER = f"LibriTTS_R/{SPLIT}/84/121207"
ID = clip_id(0)


def read(folder: Path, data: bytes, lines: list[str] | None = None) -> SpooledSplit:
    archive = folder / "dev_clean.tar.gz"
    archive.write_bytes(data)
    lines = [] if lines is None else lines
    return spool_archive(
        archive, SPLIT, folder / "spool", source="LibriTTS-R", licence="CC", report=lines.append
    )


def refusal(folder: Path, data: bytes) -> str:
    with pytest.raises(CorpusError) as caught:
        read(folder, data)
    assert "\n" not in str(caught.value)
    assert "dev_clean.tar.gz" in str(caught.value)
    return str(caught.value)


def link(name: str, kind: bytes, target: str = "../../etc/passwd") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


END = bytes(1024)


def unpadded(members: Sequence[Member]) -> bytes:
    """A plain archive up to its end mark, of which it has none: what follows is the test's."""
    plain = gzip.decompress(tar_gz(members))
    with tarfile.open(fileobj=io.BytesIO(plain)) as tar:
        last = tar.getmembers()[-1]
    return plain[: last.offset_data + -(-last.size // 512) * 512]


def without(members: Sequence[Member], *suffixes: str) -> list[Member]:
    return [member for member in members if not member[0].endswith(suffixes)]


def test_rows_have_audio_texts_and_ids_whatever_the_order_of_members(tmp_path: Path) -> None:
    members = members_of(SPLIT, WAVS)
    spooled = read(tmp_path, tar_gz(members))
    ids = sorted(spooled.clips)
    assert ids == sorted(clip_id(number) for number in range(9))
    rows = list(spooled.rows(ids))
    assert rows[0] == {
        "audio": {"bytes": WAVS[0], "path": f"{FOLDER}/{ID}.wav"},
        "path": f"{FOLDER}/{ID}.wav",
        "id": ID,
        "speaker_id": "84",
        "chapter_id": "121207",
        "text_normalized": "The text of clip 0.",
        "text_original": "The text of Clip No. 0.",
        "source": "LibriTTS-R",
        "licence": "CC",
    }
    assert [row["audio"]["bytes"] for row in rows] == WAVS
    backwards = read(tmp_path, tar_gz(list(reversed(members))))
    assert list(backwards.rows(ids)) == rows
    assert spooled.other_files == 2 + 9  # Two lists, and what macOS adds for each clip.


def test_memory_does_not_grow_with_the_audio(tmp_path: Path) -> None:
    wavs = [bytes(1 << 20)] * 40
    data = tar_gz(members_of(SPLIT, wavs))
    tracemalloc.start()
    spooled = read(tmp_path, data)
    for row in spooled.rows(sorted(spooled.clips)):
        assert len(row["audio"]["bytes"]) == 1 << 20
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 12 << 20


@pytest.mark.parametrize(
    ("member", "words"),
    [
        (("/LibriTTS_R/dev-clean/84/1/84_1_0.wav", b""), "leads out of the archive; refused"),
        (("LibriTTS_R/../../84_1_0.wav", b""), "leads out of the archive; refused"),
        (link(f"{FOLDER}/x.wav", tarfile.SYMTYPE), "is a link; refused"),
        (link(f"{FOLDER}/x.wav", tarfile.LNKTYPE), "is a link; refused"),
        (link(f"{FOLDER}/x", tarfile.FIFOTYPE), "is no plain file; refused"),
        (link(f"{FOLDER}/x", tarfile.CHRTYPE), "is no plain file; refused"),
        ((f"LibriTTS_R/dev-other/84/121207/{ID}.wav", b""), "is not LibriTTS_R/dev-clean/"),
        ((f"LibriTTS_R/{SPLIT}/84/{ID}.wav", b""), "is not LibriTTS_R/dev-clean/"),
        ((f"LibriTTS_R/{SPLIT}/85/121207/{ID}.wav", b""), "is not LibriTTS_R/dev-clean/"),
        ((f"{FOLDER}/{ID}.wav", b"again"), f"id {ID} is there twice"),
        ((f"{FOLDER}/{ID}.normalized.txt", b"again"), f"id {ID} is there twice"),
        (
            (f"{FOLDER}/84_121207_1.original.txt", bytes((1 << 20) + 1)),
            "has 1048577 bytes, at most 1048576 are taken",
        ),
    ],
)
def test_a_member_that_cannot_be_one_is_refused_by_name(
    tmp_path: Path, member: Member | tarfile.TarInfo, words: str
) -> None:
    members: list[Member | tarfile.TarInfo] = [*members_of(SPLIT, WAVS), member]
    said = refusal(tmp_path, tar_gz(members))
    assert words in said
    assert (member.name if isinstance(member, tarfile.TarInfo) else member[0]) in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dev_clean.tar.gz", "spool"]


@pytest.mark.parametrize(
    ("gone", "words"),
    [
        (".normalized.txt", "1 of 9 ids have a wav without a normalized text, first"),
        (".wav", "1 of 9 ids have a text without a wav, first"),
    ],
)
def test_many_parts_without_a_partner_are_another_layout(
    tmp_path: Path, gone: str, words: str
) -> None:
    members = without(members_of(SPLIT, WAVS), f"/{ID}{gone}")
    said = refusal(tmp_path, tar_gz(members))
    assert f"{words} {ID}" in said
    assert "at most 0.2% may" in said


def test_a_few_parts_without_a_partner_are_rows_for_the_quarantine(tmp_path: Path) -> None:
    wavs = [b"wav"] * 1_000
    members = without(members_of(SPLIT, wavs), f"/{ID}.normalized.txt", f"/{clip_id(1)}.wav")
    lines: list[str] = []
    spooled = read(tmp_path, tar_gz(members), lines)
    first, second = spooled.rows([ID, clip_id(1)])
    assert (first["text_normalized"], first["audio"]["bytes"]) == (None, b"wav")
    assert (second["text_normalized"], second["audio"]["bytes"]) == ("The text of clip 1.", None)
    assert [line.partition(": ")[2] for line in lines[-2:]] == [
        f"1 of 1000 ids have a text without a wav, first {clip_id(1)}; speech sets them aside",
        f"1 of 1000 ids have a wav without a normalized text, first {ID}; speech sets them aside",
    ]


def test_a_clip_without_its_original_text_has_the_normalized_one(tmp_path: Path) -> None:
    members = without(members_of(SPLIT, WAVS), f"/{ID}.original.txt")
    (row,) = read(tmp_path, tar_gz(members)).rows([ID])
    assert row["text_original"] == row["text_normalized"] == "The text of clip 0."


@pytest.mark.parametrize("share", [0.01, 0.5, 0.9, 0.999])
def test_an_archive_that_ends_early_is_an_error_that_says_where(
    tmp_path: Path, share: float
) -> None:
    data = tar_gz(members_of(SPLIT, [*WAVS, *(bytes(range(256)) * 40 for _ in range(50))]))
    said = refusal(tmp_path, data[: int(len(data) * share)])
    where = "at its beginning" if share == 0.01 else "after member LibriTTS_R/"
    assert f"ends early, {where}" in said
    assert said.endswith("delete it to download it anew")


def test_damage_anywhere_in_the_packed_bytes_is_found(tmp_path: Path) -> None:
    data = tar_gz(members_of(SPLIT, WAVS))
    for at in range(10, len(data), len(data) // 40):
        damaged = data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]
        refusal(tmp_path, damaged)


def test_what_is_no_gzip_is_said(tmp_path: Path) -> None:
    said = refusal(tmp_path, b"<html>404</html>")
    assert "is damaged at its beginning: Not a gzipped file (b'<h'); delete it to down" in said
    assert said.endswith("or take another mirror")
    assert "is damaged at its beginning: empty file" in refusal(tmp_path, b"")


def test_a_broken_header_in_the_middle_does_not_end_the_archive_quietly(tmp_path: Path) -> None:
    plain = bytearray(gzip.decompress(tar_gz(members_of(SPLIT, WAVS))))
    with tarfile.open(fileobj=io.BytesIO(bytes(plain))) as tar:
        at = tar.getmembers()[10].offset
    plain[at : at + 8] = b"\xff" * 8
    assert "what follows is no member" in refusal(tmp_path, gzip.compress(bytes(plain)))


@pytest.mark.parametrize("block", [b"\0" * 512, b"\xff" * 512])
@pytest.mark.parametrize("behind", [1, 2, 5, 9])
def test_damage_of_a_header_near_the_end_loses_no_clip_quietly(
    tmp_path: Path, block: bytes, behind: int
) -> None:
    core = unpadded(members_of(SPLIT, [b"wav"] * 9))
    with tarfile.open(fileobj=io.BytesIO(core + END)) as tar:
        at = tar.getmembers()[-behind].offset
    said = refusal(tmp_path, gzip.compress(core[:at] + block + core[at + 512 :] + END))
    assert "is damaged after member LibriTTS_R/" in said
    assert "what follows is no member" in said


@pytest.mark.parametrize("end", [b"", END[:512], END[:1000]])
def test_an_archive_without_its_end_mark_ends_early(tmp_path: Path, end: bytes) -> None:
    core = unpadded(members_of(SPLIT, WAVS))
    assert "ends early, after member LibriTTS_R/" in refusal(tmp_path, gzip.compress(core + end))
    read(tmp_path, gzip.compress(core + END))
    read(tmp_path, gzip.compress(core + END + bytes(20_000)))


def claim(name: str, size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    """A header alone."""
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    return info.tobuf(tarfile.GNU_FORMAT)


@pytest.mark.parametrize(
    ("header", "words"),
    [
        (claim("LibriTTS_R/BOOKS.txt", 1 << 40), "it unpacks to 10995"),
        (claim("LibriTTS_R/BOOKS.txt", 1 << 20), "unexpected end of data"),
        (claim("LibriTTS_R/BOOKS.txt", -512), "BOOKS.txt claims -512 bytes"),
        (claim(f"{FOLDER}/84_121207_x.wav", 4000), "84_121207_x.wav has 1024 of 4000 bytes"),
        (claim("x", 1 << 32, tarfile.GNUTYPE_LONGNAME), "a header claims 4294967296 bytes"),
        (claim("x", -512, tarfile.XHDTYPE), "a header claims -512 bytes"),
        (claim("x", 1 << 20, tarfile.XHDTYPE) + b"1" * (1 << 20), "a header claims 1048576 bytes"),
    ],
)
def test_a_size_that_cannot_be_is_refused_before_it_is_read(
    tmp_path: Path, header: bytes, words: str
) -> None:
    core = unpadded(members_of(SPLIT, WAVS))
    said = refusal(tmp_path, gzip.compress(core + header + END))
    assert words in said
    assert "is damaged after member LibriTTS_R/" in said


@pytest.mark.parametrize("where", ["wavs", "tables", "end"])
def test_a_small_archive_that_is_large_inside_is_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.setattr(tar_members, "SMALLEST_LIMIT_BYTES", 1 << 20)
    large: list[Member] = {
        "wavs": members_of(SPLIT, [bytes(100_000)] * 40),
        "tables": [*members_of(SPLIT, WAVS), ("LibriTTS_R/BOOKS.txt", bytes(4_000_000))],
        "end": members_of(SPLIT, WAVS),
    }[where]
    data = unpadded(large) + END + bytes(4_000_000 if where == "end" else 0)
    assert "at most 1048576" in refusal(tmp_path, gzip.compress(data))
    assert (tmp_path / "spool").stat().st_size <= 1 << 20


def test_a_sparse_member_is_refused(tmp_path: Path) -> None:
    sparse = bytearray(claim(f"{FOLDER}/84_121207_x.wav", 0, tarfile.GNUTYPE_SPARSE))
    sparse[483:495] = b"00000010000\0"  # Its size with holes.
    sparse[148:156] = b" " * 8
    sparse[148:156] = f"{sum(sparse):06o}\0 ".encode()
    core = unpadded(members_of(SPLIT, WAVS))
    said = refusal(tmp_path, gzip.compress(core + bytes(sparse) + END))
    assert "84_121207_x.wav' is no plain file; refused" in said


def test_a_clip_whose_name_is_no_text_is_refused(tmp_path: Path) -> None:
    core = unpadded(members_of(SPLIT, WAVS))
    header = claim(f"{FOLDER}/84_121207_\udcff.wav", 0)
    said = refusal(tmp_path, gzip.compress(core + header + END))
    assert r"84_121207_\udcff.wav' has a name that is no text; refused" in said
    other = claim("LibriTTS_R/\udcff", 0)
    read(tmp_path, gzip.compress(core + other + END))


def test_an_archive_without_clips_is_refused(tmp_path: Path) -> None:
    assert "holds no clip of split dev-clean" in refusal(
        tmp_path, tar_gz([("LibriTTS_R/SPEAKERS.txt", b"")])
    )


@pytest.mark.parametrize("text", ["café".encode("latin-1"), "Hello".encode("utf-16"), b"H\0i\0"])
def test_a_text_that_is_no_utf_8_is_none_and_is_said(tmp_path: Path, text: bytes) -> None:
    members = without(members_of(SPLIT, [b"wav"] * 1_000), f"/{ID}.normalized.txt")
    members.append((f"{FOLDER}/{ID}.normalized.txt", text))
    lines: list[str] = []
    (row,) = read(tmp_path, tar_gz(members), lines).rows([ID])
    assert row["text_normalized"] is None
    assert row["text_original"] == "The text of Clip No. 0."
    assert "1 of 1000 ids have a text that is no UTF-8, first" in lines[-1]
    few = without(members_of(SPLIT, WAVS), f"/{ID}.normalized.txt")
    few.append((f"{FOLDER}/{ID}.normalized.txt", text))
    assert "1 of 9 ids have a text that is no UTF-8" in refusal(tmp_path, tar_gz(few))


def test_a_mark_of_utf_8_is_no_part_of_the_text(tmp_path: Path) -> None:
    members = without(members_of(SPLIT, WAVS), f"/{ID}.normalized.txt")
    members.append((f"{FOLDER}/{ID}.normalized.txt", "Hello".encode("utf-8-sig")))
    (row,) = read(tmp_path, tar_gz(members)).rows([ID])
    assert row["text_normalized"] == "Hello"


def test_the_largest_share_alone_is_above_what_is_known_to_be_missing() -> None:
    assert tarball.LARGEST_SHARE_ALONE > 74 / 116_500
