"""`speech-ab`: two configurations asked for the same speech, clip by clip with the same seeds.

Each arm is a server of its own, A B B A in turn where both have room (else one after the other).
Raw rows and WAVs of both arms go to `ab/<comparison>/<run>/` in the store; they are read again from
there, and only then compared: where one arm's are missing there is no result. The result,
`results/ab/<device>/<comparison>/`, has a row of each clip and names both by their hashes.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
import shlex
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from resources.store import Store
from server.presets import load_preset
from speech_assets.ab.advice import advice
from speech_assets.ab.arm import LETTERS, Arm, Letter, codec_change, comparison_name, parse_arm
from speech_assets.ab.figures import ab_figures
from speech_assets.ab.measure import ORDERS, Measurement
from speech_assets.ab.pairs import add_transcripts, compare_pair
from speech_assets.ab.plan import Ask, Order, asks, texts_sha256
from speech_assets.ab.raw import RawArm, pcm_of, read_pair, run_folder, write_raw
from speech_assets.ab.tables import comparison_table
from speech_assets.ab.verdict import opening, verdicts
from speech_assets.ab.voices import add_voices
from speech_assets.asr.errors import AsrWeightsError
from speech_assets.errors import ConfigError
from speech_assets.load.levels import parse_seeds
from speech_assets.profiles import DEFAULT_STORE, load_profile
from speech_assets.quality.same_speaker import yardstick
from speech_assets.quality.samples import at_judges_rate
from speech_assets.quality.sentences import QUALITY_SENTENCES
from speech_assets.results.provenance import device_of, measurement_began, place_of
from speech_assets.results.result import Result, slug
from speech_assets.speaker.weights import weights_file
from speech_assets.work import worker
from speech_assets.work.device_lock import hold_engine_device

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

KIND = "ab"
FULL_SENTENCES, FULL_SEEDS = len(QUALITY_SENTENCES), 2


def main() -> None:
    """Entry point of `speech-ab` and of `python -m speech_assets.work.ab`."""
    worker.run(_work, parser())


def parser() -> argparse.ArgumentParser:
    """Arguments of the command."""
    parser = worker.argument_parser("ab", __doc__ or "")
    add = parser.add_argument
    add("--a", default="embedded-bf16", help="arm A: PRESET[,setting=value...]")
    add("--b", default="", help="arm B, written alike; empty is arm A's preset")
    add("--codec-b", default="", help="arm B's codec: a folder, OWNER/NAME@REVISION, or a form")
    add("--sentences", type=int, default=FULL_SENTENCES, help="of the project's, the first so many")
    add("--seeds", default="1,2", help="every sentence with each, as 1,2")
    add(
        "--order", choices=ORDERS, default="auto", help="turns: both servers up; blocks: one by one"
    )
    add("--warmup", type=int, default=2, help="clips that each server speaks first, not measured")
    add("--no-transcripts", action="store_true", help="let no Whisper listen")
    add("--asr", default="", help="which Whisper; empty is the profile's")
    add("--no-speaker", action="store_true", help="compare no voices")
    add("--store", default=os.environ.get("SPEECH_STORE") or DEFAULT_STORE)
    add("--out", type=Path, help="a folder for copies: result, table, raw rows, WAVs")
    return parser


def _work(arguments: argparse.Namespace, reporter: worker.Reporter) -> None:
    store = Store(arguments.store)
    a = parse_arm(arguments.a)
    b = parse_arm(arguments.b or a.preset, codec_change(arguments.codec_b, store))
    if not 1 <= arguments.sentences <= FULL_SENTENCES:
        raise ConfigError(
            f"--sentences is {arguments.sentences}; there are 1 to {FULL_SENTENCES} of them"
        )
    if not 0 <= arguments.warmup <= 100:
        raise ConfigError(f"--warmup is {arguments.warmup}; give 0 to 100 clips")
    seeds = parse_seeds(arguments.seeds)
    asr = "" if arguments.no_transcripts else arguments.asr or load_profile().asr
    asked = asks(QUALITY_SENTENCES[: arguments.sentences], seeds)
    if arguments.out is not None:
        _check_out(arguments.out)
    if not arguments.no_speaker:
        weights_file()  # Before an hour of measuring, not after it.
    if asr:
        reporter.notice(f"Whisper's weights are looked at: {asr}")
        check_asr(asr)
    started_at, name = measurement_began(), comparison_name(a, b)
    reporter.start(2 * len(asked), "clips")
    try:
        with (
            hold_engine_device(load_preset(a.preset).device, reporter.log),
            run_folder(store, slug(name), re.sub(r"\D", "", started_at)) as folder,
        ):
            measurement = Measurement(
                store, folder, {"a": a, "b": b}, asked, arguments.warmup, arguments.order, reporter
            )
            raw_a, raw_b, order = measurement.run()
            config = _config(store, folder, raw_a, raw_b, asked, order)
            rows, heard_by = compared(store, config, asr, reporter)
            if not arguments.no_speaker:
                rows, of_voices = with_voices(store, config, rows)
                config |= of_voices
            result = Result(
                kind=KIND,
                name=name,
                reduced=arguments.sentences < FULL_SENTENCES or len(seeds) < FULL_SEEDS,
                started_at=started_at,
                device=device_of(raw_a.engine["device"]),
                command=_command(arguments, a, b),
                config={**config, "asr": heard_by},
                seeds=seeds,
                rows=rows,
                figures=ab_figures(rows, raw_a, raw_b),
            )
            store.write_json(result.key, result.as_json())
    except KeyboardInterrupt:
        # Clips of two runs are no comparison: the next one measures all of them itself.
        raise KeyboardInterrupt("there is no result, and the next comparison begins anew") from None
    value = result.as_json()
    if arguments.out is not None:
        keep_copies(store, Store(str(arguments.out)), folder, result.key, value)
    reporter.notice(opening(value))
    for verdict in verdicts(value):
        reporter.notice(verdict.sentence)
    for sentence in advice(value):
        reporter.notice(sentence)
    reporter.result(KIND, key=result.key, folder=folder, clips=len(rows), status=result.status)


def check_asr(asr: str) -> None:
    """Nothing, if there is such a Whisper, whole; one that is to be downloaded is here then.

    It is loaded by a process of its own, whose memory is free again when servers are measured.

    Raises:
        ConfigError, AsrWeightsError, AsrDownloadError: as `load_transcriber`.
        AsrWeightsError: loading it killed the process.
    """
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context, worker.die_with_parent) as pool:
        try:
            pool.submit(_load_asr, asr).result()
        except BrokenProcessPool as error:
            raise AsrWeightsError(
                f"asr {asr!r}: loading it killed its process ({error}); give a smaller one by "
                "--asr, or leave it out by --no-transcripts"
            ) from error


def _load_asr(asr: str) -> None:
    from speech_assets.asr.weights import load_weights

    load_weights(asr, "cpu")


def compared(
    store: Store, config: Mapping[str, Any], asr: str, reporter: worker.Reporter
) -> tuple[list[dict[str, Any]], str]:
    """A row of each clip, from raw rows and WAVs as the store has them, and who transcribed them.

    Without `asr` nobody does.

    Raises:
        VoidError: an arm's raw rows or WAVs are missing, or not those of `config`.
    """
    a, b = read_pair(store, config)
    others = {row.place: row for row in b.rows}
    audio = [
        (row, others[row.place], pcm_of(store, row), pcm_of(store, others[row.place]))
        for row in a.rows
    ]
    rows = [compare_pair(*pair) for pair in audio]
    if not asr:
        return rows, ""
    # Here, and not above: torch and Whisper take seconds to load and the servers' memory.
    from speech_assets.asr.transcriber import load_transcriber
    from speech_assets.quality.word_errors import word_errors

    reporter.notice("Whisper listens to both arms")
    transcriber = load_transcriber(asr, "cpu" if a.engine["device"] == "cpu" else "cuda")

    def judged(text: str, pcm: NDArray[np.int16]) -> dict[str, Any]:
        heard = transcriber.transcribe(at_judges_rate(pcm)).text if len(pcm) else ""
        found = word_errors(text, heard)
        return {
            "heard": heard,
            "transcript": found.transcript,
            "words": found.words,
            "word_errors": found.word_errors,
            "format_insensitive_words": found.format_insensitive_words,
            "format_insensitive_word_errors": found.format_insensitive_word_errors,
        }

    for number, (row, (_, _, a_pcm, b_pcm)) in enumerate(zip(rows, audio, strict=True)):
        pcm: dict[Letter, NDArray[np.int16]] = {"a": a_pcm, "b": b_pcm}
        rows[number] = add_transcripts(row, {k: judged(row["text"], pcm[k]) for k in LETTERS})
    return rows, transcriber.name


def with_voices(
    store: Store, config: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The rows with how alike voices are, and what the result says of who told: encoder, yardstick.

    Raises:
        VoidError: an arm's raw rows or WAVs are missing, or not those of `config`.
    """
    # Here, as Whisper above: torch.
    from speech_assets.speaker.encoder import SpeakerEncoder

    speaker = SpeakerEncoder()
    a, b = (
        {
            (row.sentence_id, row.text, row.seed): speaker(at_judges_rate(pcm_of(store, row)))
            for row in arm.rows
        }
        for arm in read_pair(store, config)
    )
    said = {"speaker": speaker.name, "speaker_yardstick": yardstick(a)}
    return add_voices(rows, a, b), said


def same_configuration(a: RawArm, b: RawArm) -> bool:
    """Whether both arms are one configuration: the same settings and weights, wherever they lie."""
    places = ("model", "codec")
    settings = [{k: v for k, v in arm.settings.items() if k not in places} for arm in (a, b)]
    return settings[0] == settings[1] and a.weights == b.weights


def keep_copies(store: Store, out: Store, folder: str, key: str, value: Mapping[str, Any]) -> None:
    """Copies in a folder of the user's: result.json, README.md, raw rows and WAVs of both arms."""
    for each in store.keys(folder):
        out.write_bytes(each.removeprefix(f"{folder}/"), store.read_bytes(each))
    out.write_bytes("result.json", store.read_bytes(key))
    sentences = "\n".join(f"- {verdict.sentence}" for verdict in verdicts(value))
    text = f"# {value['name']}\n\n{comparison_table(value)}\n\n{sentences}\n"
    out.write_bytes("README.md", text.encode())


def _check_out(out: Path) -> None:
    """Nothing, if copies may go to this folder: those of two comparisons are never mixed.

    Raises:
        ConfigError: it has files, or cannot be made.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        has_files = any(out.iterdir())
    except OSError as error:
        raise ConfigError(f"--out {out}: {error.strerror}; give a folder to be made") from error
    if has_files:
        raise ConfigError(f"--out {out} has files; give an empty folder, or one to be made")


def _config(
    store: Store, folder: str, a: RawArm, b: RawArm, asked: Sequence[Ask], order: Order
) -> dict[str, Any]:
    """What a result says of a comparison; the raw rows that it names are written here."""
    return {
        "a": _shown(a),
        "b": _shown(b),
        "raw": {arm.arm: write_raw(store, folder, arm) for arm in (a, b)},
        "asked": [[ask.sentence.id, ask.seed] for ask in asked],
        "texts_sha256": texts_sha256((ask.sentence.id, ask.sentence.text) for ask in asked),
        "same_configuration": same_configuration(a, b),
        "order": order,
        "warmup_clips": a.warmup_clips + b.warmup_clips,
        "memory_measure": a.memory_measure if a.memory_measure == b.memory_measure else "",
        "client_shares_cores": True,  # Servers and client run on this machine.
    }


def _shown(arm: RawArm) -> dict[str, Any]:
    """What a result says of an arm, but for its rows."""
    return {
        "label": arm.label,
        "preset": arm.preset,
        "settings": dict(arm.settings),
        "config_sha256": arm.config_sha256,
        "weights": dict(arm.weights),
        "engine": dict(arm.engine),
        "unchecked": arm.unchecked,
    }


def _command(arguments: argparse.Namespace, a: Arm, b: Arm) -> str:
    words: Sequence[str] = [
        *("python", "-m", "speech_assets.work.ab", "--a", a.label, "--b", b.label),
        *("--sentences", str(arguments.sentences), "--seeds", arguments.seeds),
        *("--order", arguments.order, "--warmup", str(arguments.warmup)),
        *(["--no-transcripts"] if arguments.no_transcripts else []),
        *(["--no-speaker"] if arguments.no_speaker else []),
        *(["--asr", place_of(arguments.asr)] if arguments.asr else []),
    ]
    return shlex.join(words)


if __name__ == "__main__":
    main()
