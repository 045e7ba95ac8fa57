"""From a preset to the model that is served: weights found, checked, loaded and warm."""

from __future__ import annotations

import gc
import logging
import os
from contextlib import ExitStack
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from server.checkpoint import open_checkpoint, open_shape
from server.checks import require_checks, weights_sha256
from server.codec_form import origin_sha256
from server.engine import Sampling, find_device, open_engine
from server.files import sha256_of
from server.frames import read_layout
from server.lead_ins import LeadIns, made_up, read_lead_ins
from server.places import LONGEST_WAIT_S, Admission
from server.presets import check_recipe, config_sha256, served_as
from server.serving import Model
from server.text import TextEncoder
from server.untrained import MadeUpIds, UntrainedDecoder, UntrainedEngine
from server.voices import Voices
from server.weights import (
    CODEC_FILES,
    MODEL_FILES,
    fingerprint,
    local_folder,
    not_pinned,
)

if TYPE_CHECKING:
    from pathlib import Path

    from server.checks import Check
    from server.codec_calls import Decoder
    from server.engine import Engine
    from server.frames import TokenLayout
    from server.metrics import Metrics
    from server.preset import Device
    from server.presets import Preset

THREADS = 1  # Of torch: more wait for each other, and for the event loop.

log = logging.getLogger(__name__)


def load_model(
    preset: Preset,
    metrics: Metrics,
    *,
    store: str | None = None,
    allow_unchecked: bool = False,
    longest_wait_s: float = LONGEST_WAIT_S,
    admission: Admission = "places",
) -> Model:
    """Load what `preset` names; blocks until it is warm.

    A checkpoint of the store must have passed its checks, unless `allow_unchecked`.

    Raises:
        ConfigurationError: settings cannot work here.
        WeightsError: weights are missing, damaged, unchecked or do not fit.
        EngineDiedError: the engine died while starting.
    """
    # Before torch loads, which reads it then: of its C++ side only errors are for a user.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    from server.service import EngineService

    device = find_device(preset.device)
    settings = preset.engine_settings(device)  # First: what is wrong with them takes no weights.
    location = preset.model_location(store)
    given = local_folder(location, MODEL_FILES)
    if warning := not_pinned(location, given):
        log.warning("%s", warning)
    checks: dict[str, Check] = {}
    if preset.stored_as is not None and not allow_unchecked:
        checks = _passed_checks(preset, given, device, store)
    checkpoint = open_shape(given) if preset.untrained else open_checkpoint(given)
    layout = checkpoint.layout
    front_end = MadeUpIds(layout) if preset.untrained else None
    text = TextEncoder(checkpoint.folder, layout, front_end)
    codec_folder = local_folder(preset.codec_location(), CODEC_FILES)
    lead_ins = _lead_ins(preset, layout, codec_folder)

    def open_parts() -> tuple[Engine, Decoder]:
        with ExitStack() as opened:
            # The codec first: what is wrong with it is known before the engine takes its time.
            decoder = _open_decoder(preset, codec_folder, preset.codec_device or device)
            opened.callback(decoder.close)
            engine = open_engine(checkpoint, settings)
            opened.callback(engine.close)
            decoder.warm_up()
            opened.pop_all()
        if preset.untrained:
            return UntrainedEngine(engine, layout), UntrainedDecoder(decoder)
        return engine, decoder

    # Some 3,000 modules are imported, none of them garbage: to look for it takes 1 to 2 of 10 s.
    gc.disable()
    try:
        service = EngineService(
            open_parts,
            text,
            layout,
            replace(preset.planner_config(), unpaced_in_batches=device != "cpu"),
            metrics,
            lead_ins=lead_ins,
            max_streams=preset.max_streams,
            max_queue=preset.max_queue,
            longest_wait_s=longest_wait_s,
            admission=admission,
        )
    finally:
        gc.enable()
    config = resolved_config(preset)
    facts = service.engine.facts
    config["weights"] = {
        "model": fingerprint(given, noted=True),
        "codec": fingerprint(codec_folder),
    }
    if (path := preset.lead_ins_path) is not None:
        config["weights"]["lead_ins"] = sha256_of(path)
    config["checks"] = {name: asdict(check) for name, check in checks.items()}
    config["engine"] = {name: getattr(facts, name) for name in facts.__dataclass_fields__}
    return Model(
        service,
        (preset.name, *preset.aliases),
        Voices(text.voices),
        default_sampling(preset, layout),
        config,
    )


def check_settings(preset: Preset, *, store: str | None = None) -> None:
    """Do nothing, if the settings can serve, as far as it is known without loading weights.

    The lead-ins are read as for serving. What they are to fit is looked at where it is a folder:
    from the hub nothing is fetched.

    Raises:
        ConfigurationError, WeightsError: they cannot; as `load_model` says it.
    """
    # Whether there is a GPU, "auto" finds with torch: it is not refused here for having none.
    preset.engine_settings("cpu" if preset.device == "cpu" else "cuda")
    if (path := preset.lead_ins_path) is None:
        return
    model, codec = preset.model_location(store).folder, preset.codec_location().folder
    voices = () if model is None else read_layout(model).voices
    codec_sha256 = None if codec is None else origin_sha256(codec)
    read_lead_ins(path, preset.seeded_frames, voices, codec_sha256=codec_sha256)


def _lead_ins(preset: Preset, layout: TokenLayout, codec_folder: Path) -> LeadIns:
    """What the preset's utterances are seeded with."""
    if preset.untrained and preset.seeded_frames:
        return made_up(preset.seeded_frames, layout.voices)
    path = preset.lead_ins_path
    if path is None:
        return LeadIns()
    codec_sha256 = origin_sha256(codec_folder)
    return read_lead_ins(path, preset.seeded_frames, layout.voices, codec_sha256=codec_sha256)


def _open_decoder(preset: Preset, folder: Path, device: Device) -> Decoder:
    """The codec in `folder`, where the preset has it run."""
    # Here, and not above: torch takes seconds, and the port is to answer before.
    from server.codec import load_codec, use_threads
    from server.codec_decoder import CodecDecoder, DecoderOptions

    options = DecoderOptions(
        dtype=preset.codec_dtype,
        form=preset.decode,
        kernels=preset.codec_kernels,
        noise=preset.noise,
        graphs=preset.cuda_graphs,
    )

    def open_here() -> CodecDecoder:
        use_threads(THREADS)  # Of the thread that it is called on.
        codec = load_codec(folder, device, allow_untrained=preset.untrained)
        return CodecDecoder(codec, options)

    use_threads(THREADS)
    if preset.codec_place == "thread":
        from server.codec_thread import ThreadDecoder

        return ThreadDecoder(open_here)
    if preset.codec_place == "process":
        from server.codec_process import ProcessDecoder

        return ProcessDecoder(
            folder, device, options, threads=THREADS, allow_untrained=preset.untrained
        )
    return open_here()


def _passed_checks(
    preset: Preset, folder: Path, device: Device, store: str | None
) -> dict[str, Check]:
    """Checks of the stored checkpoint in `folder` by name; what judged by less is said.

    Raises:
        WeightsError: it was made by another recipe than the preset has, or did not pass.
    """
    check_recipe(preset, folder)
    served = served_as(preset, weights_sha256(folder, noted=True), device)
    checks = require_checks(preset.checks_path(store), served, preset.name)
    for name, check in checks.items():
        if check.reduced:
            log.warning(
                "%s: its check %s is of a reduced run (%s generations); a whole one may fail it",
                preset.name,
                name,
                check.generations,
            )
    return checks


def resolved_config(preset: Preset) -> dict[str, Any]:
    """The preset's settings with their hash, as `/config` and `--print-config` show them."""
    settings = preset.config()
    return {
        "preset": preset.name,
        "config_sha256": config_sha256(settings),
        "settings": settings,
    }


def default_sampling(preset: Preset, layout: TokenLayout) -> Sampling:
    """How requests are sampled that do not say: as the preset says, else the checkpoint."""
    chosen = {
        name: getattr(preset, name) if getattr(preset, name) is not None else getattr(layout, name)
        for name in ("temperature", "top_p", "repetition_penalty")
    }
    return Sampling(**chosen, max_tokens=preset.max_model_len)
