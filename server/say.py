"""Speak one text into a WAV file: `python -m server.say TEXT [--out say.wav]`, no server needed.

The audio is what the server sends, lead-in trimmed, by the same engine, planner and codec.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import secrets
import sys
import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from server.errors import (
    BadRequestError,
    ConfigurationError,
    RequestError,
    ServerError,
    WeightsError,
)
from server.frames import SAMPLE_RATE_HZ
from server.lifecycle import EXIT_CONFIGURATION, EXIT_ENGINE, EXIT_WEIGHTS
from server.loading import load_model
from server.metrics import Metrics
from server.presets import DEFAULT_STORE, load_preset, overridden
from server.speech import SpeechRequest, UtteranceReport
from server.timings import timings_of
from server.wav import wav_header

if TYPE_CHECKING:
    from collections.abc import Sequence

    from server.serving import Model

EXIT_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Speak what the command line says; 0, or 2, 3 or 5 as the server's exit codes."""
    arguments = _parser().parse_args(argv)
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(message)s")
    out: Path = arguments.out
    if (fault := _fault(arguments)) is not None:
        return _told(ConfigurationError(fault))
    # What vLLM prints on standard output belongs to standard error: the answer is one line.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    print("Loading the model (up to a minute on a slow machine) ...", file=sys.stderr)
    try:
        preset = overridden(
            load_preset(arguments.preset),
            model=arguments.model,
            codec=arguments.codec,
            device=arguments.device,
        )
        model = load_model(preset, Metrics(), store=os.environ.get("SPEECH_STORE") or DEFAULT_STORE)
        try:
            report = asyncio.run(speak(model, arguments))
        finally:
            model.service.close()
    except ServerError as error:
        return _told(error)
    except KeyboardInterrupt:
        print("interrupted; nothing is written", file=sys.stderr)
        return EXIT_INTERRUPTED
    seconds = report.samples / SAMPLE_RATE_HZ
    line = {"file": str(out), "seconds": round(seconds, 2), "finish_reason": report.finish_reason}
    with answers:
        if answers.isatty():
            print(f"wrote {out}: {seconds:.1f} s of speech, RTF {report.rtf:.2f}", file=answers)
        else:
            print(json.dumps({**line, **timings_of(report)}), file=answers)
    return 0


async def speak(model: Model, arguments: argparse.Namespace) -> UtteranceReport:
    """Speak the text into the file, which is there only when it is whole.

    Raises:
        RequestError: there is no such voice.
        ServerError: the text cannot be spoken.
    """
    seed = secrets.randbits(31) if arguments.seed is None else arguments.seed
    request = SpeechRequest(
        id=uuid.uuid4().hex,
        text=arguments.text,
        voice=model.voices.resolve(arguments.voice),
        sampling=replace(model.sampling, seed=seed),
        lead_in=arguments.lead_in,
        whole=True,
    )
    utterance = await model.service.speak(request)
    chunks = [chunk async for chunk in utterance]
    report = utterance.report
    assert report is not None
    if report.finish_reason == "error":
        raise ServerError(f"speech failed: {report.error}")
    if not chunks:
        raise ServerError(
            "the model gave no audio for this text; try another --seed or other words"
        )
    out: Path = arguments.out
    audio = b"".join(chunks)
    write_whole(out, wav_header(len(audio)) + audio)
    return report


def write_whole(path: Path, data: bytes) -> None:
    """Write a file that is there whole or not at all.

    Raises:
        ConfigurationError: it cannot be written there.
    """
    temporary = path.with_name(f".{path.name}.part")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise ConfigurationError(
            f"--out {path}: {error.strerror}; give a file in a folder that can be written"
        ) from error


def _fault(arguments: argparse.Namespace) -> str | None:
    """What is wrong with the arguments, as far as that shows before the model is loaded."""
    out: Path = arguments.out
    if not arguments.text.strip():
        return "the text is empty; give words to speak"
    if arguments.seed is not None and not 0 <= arguments.seed < 2**63:
        return f"--seed {arguments.seed} is outside 0..2**63-1"
    if out.is_dir():
        return f"--out {out} is a folder; name the file in it"
    if not out.parent.is_dir():
        return f"--out {out}: there is no folder {out.parent}"
    if not os.access(out.parent, os.W_OK):
        return f"--out {out}: nothing can be written into {out.parent}"
    return None


def _told(error: Exception) -> int:
    print(error, file=sys.stderr)
    if isinstance(error, (ConfigurationError, BadRequestError, RequestError)):
        return EXIT_CONFIGURATION
    return EXIT_WEIGHTS if isinstance(error, WeightsError) else EXIT_ENGINE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m server.say", description=(__doc__ or "").split("\n")[0]
    )
    add = parser.add_argument
    add("text", help="what to speak")
    add("--out", type=Path, default=Path("say.wav"), help="the WAV file to write")
    add("--voice", help="a voice of the model; its first by default")
    add("--seed", type=int, help="the same seed gives the same words; by default any")
    add("--preset", default="embedded", help="row of server/presets.toml or SPEECH_PRESETS")
    add("--model", metavar="DIR|REPO@REV", help="language model, instead of the preset's")
    add("--codec", metavar="DIR|REPO@REV", help="codec, instead of the preset's")
    add("--device", choices=("auto", "cpu", "cuda"), default="auto", help="what to run on")
    add("--lead-in", choices=("trim", "keep"), default="trim", help="near-silence before speech")
    return parser


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # Taking torch and vLLM apart object by object would take seconds.
