"""Have the base model speak the texts that calibrate checkpoints, and those that judge them.

The project's own engine generates, as it would for a listener, a few streams at a time. What was
finished before an end is kept and not generated again; nothing is done where all of it is there.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import os
from typing import TYPE_CHECKING, Any

from resources.store import Store
from server.checkpoint import open_checkpoint
from server.checks import weights_sha256
from server.engine import find_device
from server.frames import REALTIME_TOKENS_PER_S
from server.loading import default_sampling
from server.presets import load_preset
from server.weights import MODEL_FILES, local_folder, parse_location
from speech_assets.errors import ConfigError
from speech_assets.profiles import DEFAULT_STORE
from speech_assets.quantize.calibration import (
    CALIBRATION_KEY,
    CODE_VERSION,
    HELD_OUT_KEY,
    MAX_TOKENS,
    RECORD_KEY,
    SCHEMA_VERSION,
    CalibrationError,
    CalibrationRecord,
    check_apart,
    check_files,
    pack_generations,
    read_record,
    text_sets,
    texts_sha256,
)
from speech_assets.quantize.calibration_texts import CALIBRATION_TEXTS, HELD_OUT_TEXTS
from speech_assets.spread import spread
from speech_assets.work import worker
from speech_assets.work.device_lock import hold_engine_device
from speech_assets.work.speaker import Speaker, Task

if TYPE_CHECKING:
    from collections.abc import Sequence

    from server.engine import EngineSettings

KIND = "calibration"
STREAMS = 8
"""Generations at once: a CPU gains little by more, and keys and values take memory."""
_FOLDER = "calibration"
_PART = f"{_FOLDER}/part-"


def main() -> None:
    """Entry point of `python -m speech_assets.work.calibration`."""
    parser = worker.argument_parser("calibration", __doc__ or "")
    add = parser.add_argument
    add("--store", default=os.environ.get("SPEECH_STORE") or DEFAULT_STORE)
    add("--preset", default="embedded-bf16", help="whose base model speaks, by its settings")
    add("--base", default="", help="base model, DIR or REPO@REV; empty is the preset's")
    add("--texts", type=int, default=len(CALIBRATION_TEXTS), help="how many calibrate")
    add("--held-out", type=int, default=len(HELD_OUT_TEXTS), help="how many judge")
    a_second = f"of a generation; {REALTIME_TOKENS_PER_S:.2f} are a second"
    add("--max-tokens", type=int, default=MAX_TOKENS, help=a_second)
    worker.run(_work, parser)


def _work(arguments: argparse.Namespace, reporter: worker.Reporter) -> None:
    # Before torch loads, which reads it then: of its C++ side only errors are for a user.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    tasks = tasks_of("calibration", CALIBRATION_TEXTS, arguments.texts, 0)
    held_out = tasks_of("held-out", HELD_OUT_TEXTS, arguments.held_out, len(CALIBRATION_TEXTS))
    if arguments.max_tokens < 1:
        raise ConfigError(f"--max-tokens is {arguments.max_tokens}; it must be 1 or more")
    texts = [task.text for task in tasks], [task.text for task in held_out]
    check_apart(text_sets(*texts))
    store = Store(arguments.store)
    preset = load_preset(arguments.preset)
    location = parse_location(arguments.base) if arguments.base else preset.base_location()
    folder = local_folder(location, MODEL_FILES)
    checkpoint = open_checkpoint(folder)
    chosen = default_sampling(preset, checkpoint.layout)  # As for a listener.
    sampling = {
        "temperature": chosen.temperature,
        "top_p": chosen.top_p,
        "repetition_penalty": chosen.repetition_penalty,
        "max_tokens": arguments.max_tokens,
    }
    made_with: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "code_version": CODE_VERSION,
        "base_weights_sha256": weights_sha256(folder),
        "texts_sha256": texts_sha256(*texts),
        "sampling": sampling,
    }
    there = _already(store, made_with)
    if there is not None:
        reporter.log(f"{store.path(RECORD_KEY)}: the generations are there")
        _report(reporter, there)
        return
    with hold_engine_device(preset.device, reporter.notice):
        settings = engine_settings(preset.engine_settings(find_device(preset.device)))
        reporter.start(len(tasks) + len(held_out), "texts")
        speaker = Speaker(store, checkpoint, settings, sampling, _part_prefix(made_with), reporter)
        try:
            rows = {CALIBRATION_KEY: speaker.speak(tasks), HELD_OUT_KEY: speaker.speak(held_out)}
        finally:
            speaker.close()
    store.delete(RECORD_KEY)  # It would speak of other files from here on.
    files = {key: pack_generations(made) for key, made in rows.items()}
    for key, data in files.items():
        store.write_bytes(key, data)
    record = CalibrationRecord(
        base=str(location),
        base_weights_sha256=made_with["base_weights_sha256"],
        texts_sha256=made_with["texts_sha256"],
        sampling=sampling,
        engine={"dtype": settings.dtype, "device": settings.device, "head": settings.head},
        rows=len(rows[CALIBRATION_KEY]),
        held_out_rows=len(rows[HELD_OUT_KEY]),
        tokens=sum(len(row.token_ids) for row in rows[CALIBRATION_KEY]),
        held_out_tokens=sum(len(row.token_ids) for row in rows[HELD_OUT_KEY]),
        sha256={key: hashlib.sha256(data).hexdigest() for key, data in files.items()},
    )
    store.write_json(RECORD_KEY, dataclasses.asdict(record))
    for key in store.keys(_FOLDER):
        if key.startswith(_PART):
            store.delete(key)
    cut = sum(row.finish_reason == "length" for made in rows.values() for row in made)
    if cut:
        reporter.notice(f"{cut} generations were cut at {arguments.max_tokens} tokens")
    _report(reporter, record)


def tasks_of(name: str, texts: Sequence[str], count: int, first: int) -> list[Task]:
    """`count` of the texts, evenly spread.

    A text keeps its number, counted from `first`, and so its voice and seed, whatever the count.

    Raises:
        ConfigError: there are not as many.
    """
    try:
        places = spread(count, len(texts))
    except ConfigError as error:
        raise ConfigError(f"{name} texts: {error}") from error
    return [Task(f"{name}-{place:03d}", texts[place], first + place) for place in places]


def engine_settings(settings: EngineSettings) -> EngineSettings:
    """The settings of a preset for its base model: whole keys and values, a few streams."""
    kept = {name: value for name, value in settings.vllm_args.items() if name != "kv_cache_dtype"}
    return dataclasses.replace(
        settings,
        head="audio",
        form="in_process",
        max_streams=min(settings.max_streams, STREAMS),
        vllm_args=kept,
    )


def _part_prefix(made_with: dict[str, Any]) -> str:
    """How keys of finished parts begin, by what they are made with; their texts are compared."""
    same = {name: value for name, value in made_with.items() if name != "texts_sha256"}
    return f"{_PART}{hashlib.sha256(json.dumps(same, sort_keys=True).encode()).hexdigest()[:16]}"


def _already(store: Store, made_with: dict[str, Any]) -> CalibrationRecord | None:
    """The record of an earlier run that made the same, its files whole."""
    try:
        record = read_record(store)
        check_files(store, record)
    except CalibrationError:
        return None
    return record if all(getattr(record, k) == v for k, v in made_with.items()) else None


def _report(reporter: worker.Reporter, record: CalibrationRecord) -> None:
    reporter.result(
        KIND,
        rows=record.rows,
        held_out_rows=record.held_out_rows,
        tokens=record.tokens,
        held_out_tokens=record.held_out_tokens,
        base=record.base,
    )


if __name__ == "__main__":
    main()
