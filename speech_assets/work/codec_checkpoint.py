"""A decode-only codec in one form: made into the store, and compared with the codec it is made of.

`codecs/<form>/` becomes a codec folder that the server takes (`--codec`), without an encoder, with
a record, `codec.json`. Then the whole codec in float32 (arm A) and the form (arm B) decode the same
codes of real clips, in one process, in turn: error, health of the audio, time and memory of both.

A form is how the weights lie in the file. What decodes is `--dtype`, in the server the preset's
`codec_dtype`: in one dtype all forms decode equally fast and hold equally much memory once loaded.
A form saves space on the disk, and work in loading.
"""

from __future__ import annotations

import argparse
import os
import shlex
from typing import TYPE_CHECKING

from resources.store import Store
from server.codec import use_exact_float32, use_threads
from server.codec_decoder import DTYPES, Dtype
from server.codec_form import FORMS, parse_form
from server.weights import CODEC_FILES, local_folder, parse_location
from speech_assets.codec_forms.figures import FULL_CALLS, FULL_CLIPS, KIND, codec_figures
from speech_assets.errors import ConfigError
from speech_assets.profiles import DEFAULT_STORE, load_profile
from speech_assets.results.provenance import measurement_began, place_of
from speech_assets.results.result import Figure, Result
from speech_assets.work import worker
from speech_assets.work.codec_folder import form_folder, make_form
from speech_assets.work.codec_measurement import (
    BATCH_ROWS,
    HOP_FRAMES,
    LOADS,
    THREADS,
    WARM_UP_CALLS,
    Arm,
    arm_costs,
    coded_clips,
    compare_arms,
    decode_times,
    load_times,
)
from speech_assets.work.device import device_row, hold_device, keep_freed_memory

if TYPE_CHECKING:
    from server.codec import Codec
    from speech_assets.codec_forms.comparison import ClipComparison


def main() -> None:
    """Entry point of `python -m speech_assets.work.codec_checkpoint`."""
    parser = worker.argument_parser("codec_checkpoint", __doc__ or "")
    add = parser.add_argument
    add("--form", required=True, help=" or ".join(FORMS))
    add("--codec", default="", help="folder or OWNER/NAME@REVISION; empty: the profile's")
    add("--store", default=os.environ.get("SPEECH_STORE") or DEFAULT_STORE, help="a folder")
    add("--device", choices=("auto", "cpu", "cuda"), default="auto")
    add("--dtype", default="auto", help="what the form decodes in; auto: as presets do, float32 on "
        "a CPU, bfloat16 on a GPU")  # fmt: skip
    add("--clips", type=int, default=FULL_CLIPS, help="real clips that are compared")
    add("--calls", type=int, default=FULL_CALLS, help="timed calls of the decoder")
    add("--allow-untrained", action="store_true", help="take random weights, to measure speed by")
    worker.run(_work, parser)


def _work(arguments: argparse.Namespace, reporter: worker.Reporter) -> None:
    started_at = measurement_began()
    form = parse_form(arguments.form)
    for name in ("clips", "calls"):
        if getattr(arguments, name) < 1:
            raise ConfigError(f"--{name} is {getattr(arguments, name)}; it must be 1 or more")
    store = Store(arguments.store)
    folder = form_folder(store, form)
    choice = load_profile().codec
    location = arguments.codec or choice.location
    untrained = arguments.allow_untrained or (not arguments.codec and choice.allow_untrained)
    source = local_folder(parse_location(location), CODEC_FILES)
    with hold_device(arguments.device, reporter.notice) as device:
        use_threads(THREADS)
        keep_freed_memory()
        use_exact_float32()
        dtype = choose_dtype(arguments.dtype, device.torch_name)
        reference = Arm(source, device.torch_name, "float32", untrained)
        codec = reference.load()
        record, is_new = make_form(store, codec, source, place_of(location), form)
        reporter.log(f"{folder}: {'made' if is_new else 'there already, unchanged'}")
        arm = Arm(folder, device.torch_name, dtype, untrained)
        clips, figures = measure(reference, codec, arm, arguments.clips, arguments.calls, reporter)
    result = Result(
        kind=KIND,
        name=f"{form} {codec.identity.name}",
        started_at=started_at,
        device=device_row(device),
        command=_command(arguments),
        reduced=arguments.clips < FULL_CLIPS or arguments.calls < FULL_CALLS,
        config={
            "form": form,
            # By hashes: a result may be published, and where codecs lie is this machine's affair.
            "weights_sha256": record["weights_sha256"],
            "parent": {name: v for name, v in record["parent"].items() if name != "location"},
            "trained": codec.identity.trained,
            "dtype": dtype,
            "reference_dtype": reference.dtype,
            "clips": arguments.clips,
            "calls": arguments.calls,
            "warm_up_calls": WARM_UP_CALLS,
            "loads": LOADS,
            "hop_frames": HOP_FRAMES,
            "batch_rows": BATCH_ROWS,
            "threads": THREADS,
        },
        rows=[clip.as_row() for clip in clips],
        figures=figures,
    )
    store.write_json(result.key, result.as_json())
    reporter.result(
        KIND,
        form=form,
        key=result.key,
        folder=str(folder),
        made=is_new,
        weights_sha256=record["weights_sha256"],
        file_bytes=record["weights_bytes"],
        relative_error=figures["relative_error"].value,
        flagged_clips=figures["flagged_clips"].value,
    )


def measure(
    reference: Arm,
    codec: Codec,
    form: Arm,
    clip_count: int,
    calls: int,
    reporter: worker.Reporter,
) -> tuple[list[ClipComparison], dict[str, Figure]]:
    """Comparison of each clip in the form's dtype, and the figures of both arms.

    Args:
        codec: the reference arm's, loaded.
        calls: timed calls of each decoder, for each number of rows.

    Raises:
        CorpusError: the embedded corpus has no such clips.
        MeasurementError: the reference decodes to silence, or memory cannot be measured.
    """

    def step() -> None:
        reporter.advance(1)

    is_exact = form.dtype == "float32"
    rounds = len(BATCH_ROWS) * (WARM_UP_CALLS + calls)
    reporter.start(clip_count * (2 if is_exact else 3) + rounds, "steps")
    clips = coded_clips(codec, clip_count, step)
    other = form.load()
    quiet = reference.decoder(codec, noise=False)
    compared = compare_arms(quiet, form.decoder(other, noise=False), clips, step)
    exact = compared
    if not is_exact:
        in_float32 = form.decoder(other, noise=False, dtype="float32")
        exact = compare_arms(quiet, in_float32, clips, step)
    decoders = [reference.decoder(codec, noise=True), form.decoder(other, noise=True)]
    for decoder in decoders:
        decoder.warm_up()
    times = {rows: decode_times(decoders, clips, rows, calls, step) for rows in BATCH_ROWS}
    arms = ((reference, codec), (form, other))
    loads = load_times([reference, form])
    costs = [
        arm_costs(arm, held, loads[i], {rows: times[rows][i] for rows in BATCH_ROWS})
        for i, (arm, held) in enumerate(arms)
    ]
    return compared, codec_figures(compared, exact, costs[1], costs[0])


def choose_dtype(text: str, device: str) -> Dtype:
    """The dtype called `text`; `auto` is what presets have: float32 on a CPU, bfloat16 on a GPU.

    Raises:
        ConfigError: there is no such dtype.
    """
    if text == "auto":
        return "float32" if device == "cpu" else "bfloat16"
    if text not in DTYPES:
        raise ConfigError(f"--dtype {text!r}: there is none; use auto, {', '.join(DTYPES)}")
    return text


def _command(arguments: argparse.Namespace) -> str:
    words = ["python", "-m", "speech_assets.work.codec_checkpoint", "--form", arguments.form]
    words += ["--codec", place_of(arguments.codec)] if arguments.codec else []
    for name, usual in (("dtype", "auto"), ("clips", FULL_CLIPS), ("calls", FULL_CALLS)):
        if getattr(arguments, name) != usual:
            words += [f"--{name}", str(getattr(arguments, name))]
    words += ["--allow-untrained"] * arguments.allow_untrained
    return shlex.join(words)


if __name__ == "__main__":
    main()
