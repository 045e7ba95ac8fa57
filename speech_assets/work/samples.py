"""Speak sentences through a running server and keep them: `samples/<preset>/` in the store.

A server of the preset is started, asked as any client asks it, and ended. Each sentence becomes a
WAV; ``samples.json``, written last, says for each what was asked and how it went.
"""

from __future__ import annotations

import argparse
import io
import os
import wave
from typing import TYPE_CHECKING, Any

import httpx

from resources.speech_server import SpeechServer
from resources.store import Store
from server.frames import SAMPLE_RATE_HZ
from server.presets import config_sha256, load_preset
from speech_assets.errors import SpeechAssetsError
from speech_assets.profiles import DEFAULT_STORE
from speech_assets.results import utc_now
from speech_assets.sentences import SAMPLES_CODE_VERSION, SENTENCES
from speech_assets.work import worker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from server.presets import Preset

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
    asked = [[sentence, seed] for sentence in sentences for seed in seeds]
    there = _already(store, preset, asked)
    if there is not None:
        reporter.log(f"{samples_key(preset.name)}: the samples are there")
        _report(reporter, preset.name, there)
        return
    reporter.start(len(asked), "clips")
    with SpeechServer.running(
        arguments.preset, environment={"SPEECH_STORE": arguments.store}
    ) as server:
        rows = speak(server, store, sentences, seeds, reporter)
    store.write_json(
        samples_key(server.preset),
        {
            "schema_version": SCHEMA_VERSION,
            "code_version": SAMPLES_CODE_VERSION,
            "preset": server.preset,
            "config_sha256": server.config_sha256,
            "made_at": utc_now(),
            "clips": rows,
        },
    )
    _report(reporter, server.preset, rows)


def _report(reporter: worker.Reporter, preset: str, rows: list[dict[str, Any]]) -> None:
    seconds = sum(row["seconds"] for row in rows)
    reporter.result("samples", preset=preset, clips=len(rows), seconds=seconds)


def _already(store: Store, preset: Preset, asked: list[list[Any]]) -> list[dict[str, Any]] | None:
    """The clips of an earlier run that made the same with the same configuration."""
    if not store.exists(samples_key(preset.name)):
        return None
    there: dict[str, Any] = store.read_json(samples_key(preset.name))
    rows: list[dict[str, Any]] = there["clips"]
    same = (
        there["code_version"] == SAMPLES_CODE_VERSION
        and there["config_sha256"] == config_sha256(preset.config())
        and [[row["sentence"], row["seed"]] for row in rows] == asked
        and all(store.exists(row["file"]) for row in rows)
    )
    return rows if same else None


def speak(
    server: SpeechServer,
    store: Store,
    sentences: Sequence[str],
    seeds: Sequence[int],
    reporter: worker.Reporter,
) -> list[dict[str, Any]]:
    """Have every sentence spoken with every seed; a row of each clip.

    Raises:
        SpeakingError: the server answered with an error, or with something else than a WAV.
    """
    rows: list[dict[str, Any]] = []
    with httpx.Client(base_url=server.url, timeout=TIMEOUT_S) as client:
        for number, sentence in enumerate(sentences):
            for seed in seeds:
                body = {"input": sentence, "response_format": "wav", "seed": seed}
                response = client.post("/v1/audio/speech", json=body)
                where = f"sentence {number} ({sentence!r}), seed {seed}"
                if response.status_code != 200:
                    raise SpeakingError(
                        f"{where}: the server answered {response.status_code}: {response.text}"
                    )
                key = f"samples/{server.preset}/{number:03d}-{seed}.wav"
                audio, samples = whole_wav(response.content, where)
                store.write_bytes(key, audio)
                rows.append(
                    {
                        "file": key,
                        "sentence": sentence,
                        "seed": seed,
                        "seconds": samples / SAMPLE_RATE_HZ,
                        "request": response.headers["x-request-id"],
                    }
                )
                reporter.advance(1)
    return rows


def whole_wav(streamed: bytes, where: str) -> tuple[bytes, int]:
    """A WAV with true sizes of one whose header says that it is a stream, and its samples.

    Raises:
        SpeakingError: it is not such a WAV of 16 bits, mono, 24 kHz.
    """
    head = streamed[:44]
    if head[:4] != b"RIFF" or head[36:40] != b"data" or len(streamed) % 2:
        raise SpeakingError(f"{where}: {len(streamed)} bytes are not a streamed WAV")
    pcm = streamed[44:]
    target = io.BytesIO()
    with wave.open(target, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(SAMPLE_RATE_HZ)
        file.writeframes(pcm)
    return target.getvalue(), len(pcm) // 2


if __name__ == "__main__":
    main()
