"""Speak sentences through a running server and keep them: `samples/<preset>/` in the store.

A server of the preset is started, asked as any client asks it, and ended. Each sentence becomes a
WAV; ``samples.json``, written last, says for each what was asked and how it went. Nothing in it
tells when or in which run: the same preset gives the same bytes again.
"""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any

import httpx

from resources.speech_server import SpeechServer
from resources.store import Store
from server.frames import SAMPLE_RATE_HZ
from server.presets import config_sha256, load_preset
from server.wav import BYTES_PER_SAMPLE, HEADER_BYTES
from server.weights import CODEC_FILES, MODEL_FILES, fingerprint, local_folder
from speech_assets.errors import SpeechAssetsError
from speech_assets.profiles import DEFAULT_STORE
from speech_assets.sentences import SAMPLES_CODE_VERSION, SENTENCES
from speech_assets.work import worker

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SCHEMA_VERSION = 1
TIMEOUT_S = 300.0


class SpeakingError(SpeechAssetsError):
    """The server did not speak a sentence."""


def samples_key(preset: str) -> str:
    """Key of what says which samples there are."""
    return f"samples/{preset}/samples.json"


def main() -> None:
    """Entry point of `python -m speech_assets.work.samples`."""
    parser = worker.argument_parser("samples", __doc__ or "")
    parser.add_argument("--preset", default="embedded-bf16")
    parser.add_argument("--store", default=os.environ.get("SPEECH_STORE") or DEFAULT_STORE)
    parser.add_argument("--sentences", type=int, default=len(SENTENCES), help="how many")
    parser.add_argument("--seeds", default="1", help="of each sentence, with commas between")
    worker.run(_work, parser)


def _work(arguments: argparse.Namespace, reporter: worker.Reporter) -> None:
    store = Store(arguments.store)
    sentences = SENTENCES[: arguments.sentences]
    seeds = [int(seed) for seed in arguments.seeds.split(",")]
    preset = load_preset(arguments.preset)
    weights = {
        "model": fingerprint(local_folder(preset.model_location(arguments.store), MODEL_FILES)),
        "codec": fingerprint(local_folder(preset.codec_location(), CODEC_FILES)),
    }
    made_with = {
        "schema_version": SCHEMA_VERSION,
        "code_version": SAMPLES_CODE_VERSION,
        "preset": preset.name,
        "config_sha256": config_sha256(preset.config()),
        "weights": weights,
        "asked": [[sentence, seed] for sentence in sentences for seed in seeds],
    }
    there = _already(store, made_with)
    if there is not None:
        reporter.log(f"{samples_key(preset.name)}: the samples are there")
        _report(reporter, preset.name, there)
        return
    reporter.start(len(sentences) * len(seeds), "clips")
    with SpeechServer.running(
        arguments.preset, environment={"SPEECH_STORE": arguments.store}, info_is_shown=False
    ) as server:
        rows = speak(server, store, sentences, seeds, reporter)
    store.write_json(samples_key(preset.name), {**made_with, "clips": rows})
    _report(reporter, server.preset, rows)


def _report(reporter: worker.Reporter, preset: str, rows: list[dict[str, Any]]) -> None:
    seconds = sum(row["seconds"] for row in rows)
    reporter.result("samples", preset=preset, clips=len(rows), seconds=seconds)


def _already(store: Store, made_with: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """The clips of an earlier run that made the same with the same configuration and weights."""
    if not store.exists(samples_key(made_with["preset"])):
        return None
    there: dict[str, Any] = store.read_json(samples_key(made_with["preset"]))
    if any(there.get(name) != value for name, value in made_with.items()):
        return None
    rows: list[dict[str, Any]] = there["clips"]
    return rows if all(store.exists(row["file"]) for row in rows) else None


def speak(
    server: SpeechServer,
    store: Store,
    sentences: Sequence[str],
    seeds: Sequence[int],
    reporter: worker.Reporter,
) -> list[dict[str, Any]]:
    """Have every sentence spoken with every seed; a row of each clip.

    Raises:
        SpeakingError: the server answered with an error.
    """
    rows: list[dict[str, Any]] = []
    with httpx.Client(base_url=server.url, timeout=TIMEOUT_S) as client:
        for number, sentence in enumerate(sentences):
            for seed in seeds:
                # Whole, so that the header has true sizes and the end has its reason; with its
                # lead-in, whose trim depends on the clock.
                body = {
                    "input": sentence,
                    "response_format": "wav",
                    "seed": seed,
                    "stream": False,
                    "lead_in": "keep",
                }
                response = client.post("/v1/audio/speech", json=body)
                where = f"sentence {number} ({sentence!r}), seed {seed}"
                if response.status_code != 200:
                    raise SpeakingError(
                        f"{where}: the server answered {response.status_code}: {response.text}"
                    )
                audio = response.content
                key = f"samples/{server.preset}/{number:03d}-{seed}.wav"
                store.write_bytes(key, audio)
                rows.append(
                    {
                        "file": key,
                        "sentence": sentence,
                        "seed": seed,
                        "seconds": (len(audio) - HEADER_BYTES) / BYTES_PER_SAMPLE / SAMPLE_RATE_HZ,
                        "finish_reason": response.headers["x-finish-reason"],
                    }
                )
                reporter.advance(1)
    return rows


if __name__ == "__main__":
    main()
