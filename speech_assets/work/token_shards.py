"""One token shard from one speech shard: read, checked, stored, or found to be valid already.

A shard is checked before it is stored: the codes of a sample of its clips must be those of the
reference (the clip alone, eager, float32, TF32 off). How far the decoded sample is from the
original is recorded with it.
"""

from __future__ import annotations

import json
import random
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from server import frames
from speech_assets.corpus.agreement import Agreement, Limits, limits_for
from speech_assets.corpus.audio import from_pcm16
from speech_assets.corpus.fidelity import Fidelity, compare
from speech_assets.corpus.shards import (
    SPEECH_SCHEMA,
    TOKEN_CODE_VERSION,
    TOKEN_SCHEMA,
    Shard,
    check_token_table,
    fingerprint,
    iterate_rows,
    read_columns,
    read_footer,
    token_row,
    with_metadata,
    write_rows,
)
from speech_assets.errors import AgreementError, ShardError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from resources.store import Store
    from server.codec import Codec
    from speech_assets.work.tokenizer import EncodeOptions, Tokenizer

CHECKED_CLIPS = 8
CHECKED_SHARE = 0.01
SILENT_DBFS = -60.0


@dataclass(frozen=True, slots=True)
class SpeechShard:
    """Rows of a speech shard in memory, with their 16-bit samples at 24 kHz."""

    shard: Shard
    fingerprint: str
    rows: list[dict[str, Any]]
    clips: list[NDArray[np.int16]]

    @property
    def audio_s(self) -> float:
        """Seconds of audio in it."""
        return sum(map(len, self.clips)) / frames.SAMPLE_RATE_HZ

    def samples(self, clip: int) -> NDArray[np.float32]:
        """A clip's samples in -1..1."""
        return from_pcm16(self.clips[clip])


def read_speech(store: Store, shard: Shard) -> SpeechShard:
    """The speech shard; its samples are views of what was read.

    Raises:
        ShardError: it is missing or damaged.
    """
    key = shard.object_key("speech")
    try:
        with store.open(key) as file:
            metadata, _ = read_footer(file, SPEECH_SCHEMA, store.path(key))
            table = read_columns(file, SPEECH_SCHEMA.names, where=store.path(key))
    except FileNotFoundError as error:
        raise ShardError(
            f"{store.path(key)} is not there; materialize speech {shard.key} first"
        ) from error
    rows: list[dict[str, Any]] = table.drop_columns(["pcm"]).to_pylist()
    clips: list[NDArray[np.int16]] = []
    for row, pcm in zip(rows, _clips(table["pcm"]), strict=True):
        if len(pcm) != row["sample_count"]:
            raise ShardError(
                f"{store.path(key)} row {row['id']!r} holds {len(pcm)} samples and says "
                f"{row['sample_count']}; delete the shard and make it again"
            )
        clips.append(pcm)
    return SpeechShard(shard, metadata["fingerprint"], rows, clips)


def _clips(column: pa.ChunkedArray) -> Iterator[NDArray[np.int16]]:
    """Samples of each row of `pcm`, views of its buffers.

    By offsets, not row by row: a scalar of each row held the interpreter for 22 ms of a shard of
    827 clips, which the thread that launches kernels waits for; this takes 0.35.
    """
    for chunk in column.chunks:
        _, offsets, data = chunk.buffers()
        if data is None:  # No row, or none with a sample.
            yield from (np.empty(0, np.int16) for _ in range(len(chunk)))
            continue
        ends = np.frombuffer(offsets, np.int64)[chunk.offset :][: len(chunk) + 1].tolist()
        samples = memoryview(data)
        for begin, end in pairwise(ends):
            yield np.frombuffer(samples[begin:end], "<i2")


def finish_shard(
    store: Store, speech: SpeechShard, codes: list[NDArray[np.uint16]], tokenizer: Tokenizer
) -> dict[str, Any]:
    """Check the codes of a shard and store it; its figures.

    Raises:
        AgreementError: the codes are not those of the reference; nothing was stored.
    """
    codec, options = tokenizer.codec, tokenizer.options
    sample = checked_clips(speech.shard, len(codes))
    agreement = Agreement.empty()
    fidelities: list[Fidelity] = []
    for clip in sample:
        samples = speech.samples(clip)
        with tokenizer.beside():
            reference = codec.encode(samples)
            decoded = codec.decode(codes[clip])[: len(samples)]
        agreement = agreement.add(reference, codes[clip])
        fidelities.append(compare(samples, decoded))
    limits = limits_for(codec.device.type, options.precision)
    if faults := agreement.faults(limits):
        raise AgreementError(
            f"shard {speech.shard.key}: codes differ from the reference: {', '.join(faults)}; it"
            " was not stored. Lower batch_samples, switch compile off, or report this with the"
            " device's name"
        )
    figures = shard_figures(speech, codes, agreement, fidelities, limits)
    rows = [token_row(row, clip) for row, clip in zip(speech.rows, codes, strict=True)]
    schema = with_metadata(
        TOKEN_SCHEMA,
        {
            "fingerprint": _fingerprint(speech.fingerprint, codec, options),
            "code_version": TOKEN_CODE_VERSION,
            "layout_version": str(frames.LAYOUT_VERSION),
            "codec": codec.identity.name,
            "codec_weights_sha256": codec.identity.weights_sha256,
            "codec_trained": "true" if codec.identity.trained else "untrained",
            "precision": options.precision,
            "figures": json.dumps(figures, sort_keys=True),
        },
    )
    columns = {name: [row[name] for row in rows] for name in TOKEN_SCHEMA.names}
    if faults := check_token_table(pa.table(columns, schema=TOKEN_SCHEMA)):
        raise AgreementError(f"shard {speech.shard.key} is malformed: {'; '.join(faults)}")
    store.write(
        speech.shard.object_key("tokens"),
        lambda file: write_rows(file, schema, rows, row_group_rows=len(rows) or 1),
    )
    return figures


def held_figures(store: Store, shard: Shard, tokenizer: Tokenizer) -> dict[str, Any] | None:
    """Figures of the stored token shard when it is valid for this speech shard, codec and code."""
    speech_key, key = shard.object_key("speech"), shard.object_key("tokens")
    try:
        with store.open(speech_key) as file:
            speech, _ = read_footer(file, SPEECH_SCHEMA, store.path(speech_key))
        with store.open(key) as file:
            metadata, rows = read_footer(file, TOKEN_SCHEMA, store.path(key))
    except (FileNotFoundError, ShardError):
        return None
    wanted = _fingerprint(speech["fingerprint"], tokenizer.codec, tokenizer.options)
    if metadata.get("fingerprint") != wanted:
        return None
    figures: dict[str, Any] = json.loads(metadata["figures"])
    return figures if figures["rows"] == rows and _is_sound(store, key) else None


def _is_sound(store: Store, key: str) -> bool:
    """Whether every page of a token shard is what was written: disks and copies flip bits."""
    try:
        with store.open(key) as file:
            for _ in iterate_rows(file, TOKEN_SCHEMA.names, where=store.path(key)):
                pass
    except ShardError:
        return False
    return True


def shard_figures(
    speech: SpeechShard,
    codes: list[NDArray[np.uint16]],
    agreement: Agreement,
    fidelities: list[Fidelity],
    limits: Limits,
) -> dict[str, Any]:
    """What is recorded of a shard: the same on every run, so without times."""
    silence = 32768 * 10 ** (SILENT_DBFS / 20)
    # Not `abs`: that of -32,768 is no int16.
    silent = sum(
        max(int(clip.max(initial=0)), -int(clip.min(initial=0))) < silence for clip in speech.clips
    )
    return {
        "rows": len(codes),
        "audio_hours": speech.audio_s / 3600,
        "frames": sum(map(len, codes)),
        "silent_clips": silent,
        "checked_clips": len(fidelities),
        "agreement": agreement.overall,
        **{f"agreement_level_{i}": value for i, value in enumerate(agreement.levels)},
        "agreement_limits": asdict(limits),
        "log_mel_distance_db": _mean([f.log_mel_distance_db for f in fidelities]),
        "envelope_correlation": _mean([f.envelope_correlation for f in fidelities]),
    }


def checked_clips(shard: Shard, count: int) -> list[int]:
    """Clips of a shard that are compared with the reference: max(8, 1 %), the same at each run."""
    wanted = max(CHECKED_CLIPS, round(CHECKED_SHARE * count))
    return sorted(random.Random(shard.key).sample(range(count), min(wanted, count)))


def stored_audio_s(store: Store, shard: Shard) -> float:
    """Seconds of audio in the stored speech shard, from its footer; 0.0 when it cannot be read."""
    key = shard.object_key("speech")
    try:
        with store.open(key) as file:
            metadata, _ = read_footer(file, SPEECH_SCHEMA, store.path(key))
    except (FileNotFoundError, ShardError):
        return 0.0  # Reading it will say what is wrong.
    return float(json.loads(metadata["statistics"])["kept_s"])


def _fingerprint(speech: str, codec: Codec, options: EncodeOptions) -> str:
    identity = codec.identity
    return fingerprint(
        TOKEN_CODE_VERSION,
        speech,
        identity.weights_sha256,
        identity.config_sha256,
        frames.LAYOUT_VERSION,
        options.precision,
    )


def _mean(values: list[float]) -> float:
    return float(np.mean(values)) if values else 0.0
