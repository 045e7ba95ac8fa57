"""Texts that are apart, generations that come back as they were kept, and a real run of both."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import zstandard
from small_voice import write_small_voice

from resources.store import Store
from server.frames import ORPHEUS, read_layout
from server.text import TextEncoder
from speech_assets.errors import ConfigError
from speech_assets.quantize.calibration import (
    CALIBRATION_KEY,
    HELD_OUT_KEY,
    RECORD_KEY,
    CalibrationError,
    SharedSentence,
    SpokenText,
    check_apart,
    check_base,
    check_files,
    pack_generations,
    read_generations,
    read_record,
    shared_sentences,
    text_sets,
)
from speech_assets.quantize.calibration_texts import CALIBRATION_TEXTS, HELD_OUT_TEXTS
from speech_assets.spread import spread
from speech_assets.work.calibration import _part_prefix

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).parent.parent.parent
ROW = SpokenText(
    id="calibration-003",
    text="Déjà vu\u2028twice.",
    voice="heart",
    seed=4_103,
    sampling={"temperature": 0.6, "top_p": 0.9, "repetition_penalty": 1.0, "max_tokens": 1_200},
    prompt_ids=(1, 5, 7, 2, 3),
    token_ids=(64, 64 + 4_096),
    finish_reason="stop",
)


@pytest.fixture(scope="module", autouse=True)
def locks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Locks of devices apart, so that no other work holds the one of this machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("locks")))
        yield


def calibrate(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "speech_assets.work.calibration", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.fixture(scope="module")
def voice(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_voice(tmp_path_factory.mktemp("voice"), live_codes=1_500, ends=True)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, voice: Path) -> Store:
    """A store with a calibration of the small voice, made by the real process."""
    root = tmp_path_factory.mktemp("store")
    done = calibrate("--store", str(root), "--base", str(voice), *FEW)
    assert done.returncode == 0, done.stderr
    return Store(str(root))


FEW = ("--texts", "3", "--held-out", "2", "--max-tokens", "40")


def test_the_sets_of_texts_share_no_sentence() -> None:
    assert (len(CALIBRATION_TEXTS), len(HELD_OUT_TEXTS)) == (96, 32)
    check_apart(text_sets(CALIBRATION_TEXTS, HELD_OUT_TEXTS))
    assert len({text for text in (*CALIBRATION_TEXTS, *HELD_OUT_TEXTS)}) == 128


def test_every_text_can_be_spoken_by_the_embedded_voice() -> None:
    folder = ROOT / "server" / "embedded" / "voice"
    layout = read_layout(folder)
    encoder = TextEncoder(folder, layout)
    lengths = [
        len(encoder.encode(text, layout.voices[0]))
        for text in (*CALIBRATION_TEXTS, *HELD_OUT_TEXTS)
    ]
    assert min(lengths) >= 8
    assert max(lengths) <= 400  # Phonemes; with 1,200 tokens of speech well within 2,048.


@pytest.mark.parametrize(
    ("first", "second", "shared"),
    [
        ("The soup is ready.", "the  SOUP is ready", "The soup is ready."),
        ("It's late. Go home!", "Come in.\nits late...", "It's late."),
        ("One. Two sheep, three. Four.", "Nine. Two sheep - three! Ten.", "Two sheep, three."),
        ("\u201cWho knows?\u201d", "Who knows", "\u201cWho knows?\u201d"),
        ("I live at No\uff15.", "i live at no5!", "I live at No\uff15."),
    ],
)
def test_a_shared_sentence_is_found(first: str, second: str, shared: str) -> None:
    assert shared_sentences(["Other.", first], [second, "More."]) == [
        SharedSentence(shared, first, second)
    ]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("The soup is ready.", "The soup is ready now."),
        ("Dr. Okafor sings.", "Dr. Okafor dances."),
        ("... - !", "? ..."),
        ("", "Yes."),
    ],
)
def test_like_sentences_and_marks_are_not_shared(first: str, second: str) -> None:
    assert shared_sentences([first], [second]) == []


def test_overlapping_sets_are_refused_in_one_line() -> None:
    texts = ["Hello. I have set an alarm for half past six tomorrow morning! Bye."]
    with pytest.raises(CalibrationError) as refusal:
        check_apart(text_sets(texts, HELD_OUT_TEXTS))
    assert "the calibration texts and the held-out texts share the sentence" in str(refusal.value)
    assert "'I have set an alarm for half past six tomorrow morning!'" in str(refusal.value)
    assert "\n" not in str(refusal.value)
    with pytest.raises(CalibrationError, match=r"held-out texts and .*sentences.py share"):
        check_apart(text_sets([], ["They painted the old fence green in a single day"]))
    with pytest.raises(CalibrationError, match=r"calibration texts and .*voice/held_out.py share"):
        check_apart(text_sets(["Wait. Rice is often served in round bowls."], []))


@pytest.mark.parametrize(
    ("count", "of", "places"),
    [(1, 96, [0]), (3, 96, [0, 32, 64]), (4, 10, [0, 2, 5, 7]), (3, 3, [0, 1, 2])],
)
def test_few_are_spread_over_all(count: int, of: int, places: list[int]) -> None:
    assert spread(count, of) == places


@pytest.mark.parametrize("count", [0, -1, 97])
def test_more_than_there_are_cannot_be_had(count: int) -> None:
    with pytest.raises(ConfigError, match=f"{count} are asked for, of 96"):
        spread(count, 96)


def test_an_end_of_speech_is_scored_where_the_model_chose_it() -> None:
    assert ROW.scored_ids(ORPHEUS) == (64, 64 + 4_096, ORPHEUS.end_of_speech)
    cut = dataclasses.replace(ROW, finish_reason="length")
    assert cut.scored_ids(ORPHEUS) == (64, 64 + 4_096)


def test_generations_come_back_as_they_were(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    rows = [ROW, dataclasses.replace(ROW, id="calibration-004", text='"Quoted", \\ and\nbroken')]
    store.write_bytes(HELD_OUT_KEY, pack_generations(rows))
    assert read_generations(store, HELD_OUT_KEY) == rows
    assert pack_generations(rows) == store.read_bytes(HELD_OUT_KEY)


def _line(**changes: object) -> bytes:
    value = {**dataclasses.asdict(ROW), **changes}
    return zstandard.compress((json.dumps(value) + "\n").encode())


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "damaged"),
        (b"{}", "damaged"),
        (pack_generations([ROW] * 50)[:-20], "damaged"),
        (pack_generations([ROW])[:-1] + b"\0", "damaged"),
        (zstandard.compress(b"{not json}\n"), "damaged at generation 1"),
        (zstandard.compress(b"{}\n"), "damaged at generation 1"),
        (_line(token_ids=["a"]), "not a whole number"),
        (_line(token_ids=[-1]), "not a whole number"),
        (_line(prompt_ids=[]), "calibration-003 is empty"),
        (_line(more=1), "damaged at generation 1"),
    ],
)
def test_a_damaged_file_is_one_clear_line(tmp_path: Path, data: bytes, message: str) -> None:
    store = Store(str(tmp_path))
    store.write_bytes(HELD_OUT_KEY, data)
    with pytest.raises(CalibrationError, match=message) as refusal:
        read_generations(store, HELD_OUT_KEY)
    assert str(refusal.value).startswith(store.path(HELD_OUT_KEY))
    assert "\n" not in str(refusal.value)


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    with pytest.raises(CalibrationError, match=r"held_out.jsonl.zst is missing; materialize"):
        read_generations(store, HELD_OUT_KEY)
    with pytest.raises(CalibrationError, match=r"record.json is missing; materialize"):
        read_record(store)
    store.write_json(RECORD_KEY, {"schema_version": 99})
    with pytest.raises(CalibrationError, match="schema version 99"):
        read_record(store)


def test_the_base_model_speaks_both_sets(store: Store, voice: Path) -> None:
    record = read_record(store)
    check_files(store, record)
    rows = read_generations(store, CALIBRATION_KEY)
    held_out = read_generations(store, HELD_OUT_KEY)
    assert [row.text for row in rows] == [CALIBRATION_TEXTS[n] for n in (0, 32, 64)]
    assert [row.text for row in held_out] == [HELD_OUT_TEXTS[n] for n in (0, 16)]
    assert (record.rows, record.held_out_rows) == (3, 2)
    assert record.tokens == sum(len(row.token_ids) for row in rows)
    assert [row.seed for row in (*rows, *held_out)] == [4_100, 4_132, 4_164, 4_196, 4_212]
    layout = read_layout(voice)
    for row in (*rows, *held_out):
        layout.codes(row.token_ids[: len(row.token_ids) // 7 * 7])  # Raises off the slot.
        assert row.prompt_ids[:2] == (1, layout.voice_base)
        assert (len(row.token_ids) == 40) == (row.finish_reason == "length")
    check_base(store, record, record.base_weights_sha256, voice)
    with pytest.raises(CalibrationError, match="of another base model"):
        check_base(store, record, "0" * 64, voice)


def test_an_unchanged_calibration_is_not_made_again(store: Store, voice: Path) -> None:
    before = Path(store.path(HELD_OUT_KEY)).stat().st_mtime_ns
    done = calibrate("--store", store.root, "--base", str(voice), *FEW)
    assert done.returncode == 0
    assert "the generations are there" in done.stderr
    assert Path(store.path(HELD_OUT_KEY)).stat().st_mtime_ns == before


def test_what_is_finished_is_kept_and_the_rest_comes_out_the_same(
    store: Store, voice: Path, tmp_path: Path
) -> None:
    """As after a kill between the first part and the second: the first is taken as it lies."""
    record = dataclasses.asdict(read_record(store))
    names = ("schema_version", "code_version", "base_weights_sha256", "sampling")
    prefix = _part_prefix({name: record[name] for name in names})
    rows = read_generations(store, CALIBRATION_KEY)
    marked = [dataclasses.replace(row, seed=999) for row in rows]
    other = Store(str(tmp_path))
    other.write_bytes(f"{prefix}-calibration-000.jsonl.zst", pack_generations(marked))
    assert calibrate("--store", other.root, "--base", str(voice), *FEW).returncode == 0
    assert read_generations(other, CALIBRATION_KEY) == marked
    assert other.read_bytes(HELD_OUT_KEY) == store.read_bytes(HELD_OUT_KEY)
    assert other.keys("calibration") == [CALIBRATION_KEY, HELD_OUT_KEY, RECORD_KEY]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--texts", "97"], "calibration texts: 97 are asked for, of 96"),
        (["--held-out", "0"], "held-out texts: 0 are asked for, of 32"),
        (["--max-tokens", "0"], "--max-tokens is 0"),
        (["--base", "/nowhere"], "no such folder, and not OWNER/NAME@REVISION"),
        (["--preset", "nobody"], "no preset 'nobody'"),
        (["--preset", "embedded-upstream"], "has no checkpoint table"),
    ],
)
def test_bad_arguments_are_one_clear_line(
    tmp_path: Path, arguments: Sequence[str], message: str
) -> None:
    done = calibrate("--store", str(tmp_path), *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
