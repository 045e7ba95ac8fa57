"""A store with everything that a report shows: published results, real clips, scores by hand."""

from __future__ import annotations

import hashlib
import io
import json
import wave
from collections.abc import Sequence
from typing import Any

from conftest import EMBEDDED, ROOT
from pyarrow import parquet

from resources.store import Store
from server.wav import wav_header
from speech_assets.ab.plan import texts_sha256
from speech_assets.corpus.audio import decode_clip, to_pcm16
from speech_assets.profiles import load_profile
from speech_assets.quality.clip_scores import ClipScore
from speech_assets.quality.figures import difference_figures, wer_figures, yardstick_figures
from speech_assets.report.evidence import Evidence, gather
from speech_assets.report.sheets import MANIFEST_VERSION, SAMPLES_VERSION
from speech_assets.results.result import Figure, Result, result_key

WRITTEN_AT = "2026-11-30T12:00:00Z"
A, B = "embedded-bf16", "embedded-w4a16"
SENTENCES = (
    (0, "short", "Try the blue one first."),
    (1, "numbers", "The ferry leaves at 4:30."),
    (2, "names", "Ask Benjamin <b>now</b>, or `Vancouver`."),
)
EVIL = "<script>alert(1)</script> | **bold** [link](http://example.com) `code`"
PUBLISHED = ("fidelity", "decode_speed", "load_tests", "ladder", "codec_checkpoint")
DEVICE = {"name": "A CPU", "cores": 2}
GIT = {"commit": "0123456789abcdef", "dirty": False}
MANIFEST = {
    "schema_version": MANIFEST_VERSION,
    "corpus": "embedded",
    "split": "train",
    "made_with": {"codec": "snac-5.1M", "codec_trained": "true"},
    "totals": {
        "shards": 2, "rows": 120, "audio_hours": 0.25, "tokens": 73_829, "tokens_per_hour": 295_316,
        "speakers": 3, "quarantined_rows": 4,
    },
    "quarantine": {"too_short": 3, "no_speech": 1, "empty": 0},
    "shards": [{"agreement": 1.0}, {"agreement": 0.9995}],
}  # fmt: skip


def put(store: Store, **given: Any) -> dict[str, Any]:
    """A result in the store, as a measuring command writes it."""
    value = Result(
        **{
            "started_at": "2026-11-30T09:00:00Z",
            "device": DEVICE,
            "command": "python -m speech_assets.work.wer --preset NAME",
            "config": {},
            "rows": [],
            "git": GIT,
            "software": {"python": "3.11.7"},
            **given,
        }
    ).as_json()
    store.write_json(result_key(value), value)
    return json.loads(json.dumps(value))


def put_published(store: Store) -> None:
    """The repository's own results of the kinds that a report shows."""
    for path in (path for kind in PUBLISHED for path in (ROOT / "results" / kind).rglob("*.json")):
        store.write_bytes(str(path.relative_to(ROOT)), path.read_bytes())


def scores(
    errors: Sequence[int], transcript: str = "what was heard", wavs: Sequence[bytes] = ()
) -> list[ClipScore]:
    """Clips of the sentences in turn, each with so many wrong words of ten; seeds 1 and 2.

    `wavs` are what was heard, one a sentence.
    """
    return [
        ClipScore(
            *SENTENCES[i // 2][:2], seed=1 + i % 2, text=SENTENCES[i // 2][2],
            transcript=transcript, words=10, word_errors=wrong, format_insensitive_words=10,
            format_insensitive_word_errors=wrong, characters=50, character_errors=wrong,
            seconds=2.0, finish_reason="stop", spoke=wrong < 10, leading_silence_s=0.1, flags=(),
            dnsmos_overall=3.0,
            sha256=hashlib.sha256(wavs[i // 2]).hexdigest() if wavs else "",
        )
        for i, wrong in enumerate(errors)
    ]  # fmt: skip


def put_wer(
    store: Store,
    preset: str,
    clips: list[ClipScore],
    base: list[ClipScore] | None = None,
    **given: Any,
) -> dict[str, Any]:
    """A result of kind wer of those clips, with the figures that they have."""
    figures = wer_figures(clips)
    if base is not None:
        figures |= difference_figures(clips, base, "base") | yardstick_figures(base)
    return put(
        store,
        **{
            "kind": "wer",
            "name": preset,
            "config": {"base": A, "asr": "whisper tiny.en"},
            "rows": [clip.as_row() for clip in clips],
            "figures": figures,
            "seeds": [1, 2],
            **given,
        },
    )


def put_ab(store: Store) -> dict[str, Any]:
    """A comparison of two presets in which B's steps are faster."""
    side = {"has_audio": True, "samples": 48_000, "wall_ms": 900.0, "flags": []}
    counts = (
        "same_samples_share", "same_frames_share", "same_bytes_share", "clips_of_other_length",
        "clips_without_audio_a", "clips_without_audio_b", "flagged_clips_a", "flagged_clips_b",
    )  # fmt: skip
    figures = {
        "clips": Figure(6, "clips"),
        "sentences": Figure(3, "sentences"),
        **{name: Figure(0, "clips", 6) for name in counts},
        "lm_ms_per_step_a": Figure(4.5, "ms", 8),
        "lm_ms_per_step_b": Figure(4.0, "ms", 8),
        "lm_ms_per_step_difference": Figure(-0.5, "ms", 8, -0.6, -0.4, 8),
    }
    arm = {"config_sha256": "0" * 64, "weights": {}}
    texts = [(number, text) for number, _, text in SENTENCES]
    raw = {"key": "ab/raw.json", "sha256": "0" * 64}
    return put(
        store,
        kind="ab",
        command=f"speech-ab --a {A} --b {B}",
        name=f"{A} vs {B}",
        config={
            "a": {"label": A, **arm},
            "b": {"label": B, **arm},
            "raw": {"a": raw, "b": raw},
            "asked": [(number, seed) for number, _ in texts for seed in (1, 2)],
            "texts_sha256": texts_sha256(texts),
            "same_configuration": False,
            "memory_measure": "peak resident memory",
        },
        rows=[
            {"sentence_id": number, "seed": seed, "text": text, "a": side, "b": side}
            for number, text in texts
            for seed in (1, 2)
        ],
        figures=figures,
        seeds=[1, 2],
    )


def real_wavs(count: int) -> list[bytes]:
    """Clips of the embedded corpus, short ones, as the server writes speech."""
    table = parquet.read_table(sorted(EMBEDDED.glob("train-*.parquet"))[0], columns=["audio"])
    clips = sorted((row["audio"] for row in table.to_pylist()), key=lambda clip: len(clip["bytes"]))
    decoded = [decode_clip(clip["bytes"], path=clip["path"]) for clip in clips[20 : 20 + count]]
    pcm = [to_pcm16(clip.samples).tobytes() for clip in decoded]
    return [wav_header(len(data)) + data for data in pcm]


def put_samples(store: Store, preset: str, wavs: Sequence[bytes], **refused: str) -> str:
    """The sentences, each spoken with seeds 1 and 2; `refused` by kind. Hash of their list."""
    rows: list[dict[str, Any]] = []
    for (number, kind, text), wav in zip(SENTENCES, wavs, strict=False):
        for seed in (2, 1):
            row = {"sentence_id": number, "kind": kind, "sentence": text, "seed": seed}
            if kind in refused:
                row |= {"file": "", "seconds": 0.0, "finish_reason": "refused"}
                rows.append({**row, "error": refused[kind]})
                continue
            key = f"samples/{preset}/{number:03d}-{seed}.wav"
            store.write_bytes(key, wav)
            row |= {"file": key, "seconds": seconds_of(wav), "finish_reason": "stop", "error": ""}
            rows.append({**row, "sha256": hashlib.sha256(wav).hexdigest()})
    key = f"samples/{preset}/samples.json"
    asked = {"sentences": len(SENTENCES), "seeds": [1, 2]}
    store.write_json(key, {"schema_version": SAMPLES_VERSION, "clips": rows, "asked": asked})
    return hashlib.sha256(store.read_bytes(key)).hexdigest()


def seconds_of(wav: bytes) -> float:
    """Duration of a WAV."""
    with wave.open(io.BytesIO(wav)) as file:
        return file.getnframes() / file.getframerate()


def filled_store(root: str) -> Store:
    """A store with a result of every kind for two presets, some for all of the profile."""
    store = Store(root)
    put_published(store)
    wavs = real_wavs(len(SENTENCES))
    of_samples = [
        {"base": A, "asr": "whisper tiny.en", "samples_sha256": sha256, "sentences": 3}
        for sha256 in (put_samples(store, A, wavs), put_samples(store, B, wavs, names=EVIL))
    ]
    base = scores((1, 0, 2, 2, 0, 0), wavs=wavs)
    put_wer(store, A, base, config=of_samples[0])
    worse = scores((3, 2, 2, 2, 10, 10), EVIL, wavs)
    put_wer(store, B, worse, base, config=of_samples[1], reduced=True)
    put_ab(store)
    store.write_json("manifests/train.json", MANIFEST)
    store.write_json("manifests/other.json", {**MANIFEST, "corpus": "other", "split": "other"})
    return store


def evidence_in(store: Store) -> Evidence:
    """What a report of the embedded profile is made from."""
    profile = load_profile({})
    return gather(store, profile.name, profile.presets, profile.corpus.name, WRITTEN_AT)
