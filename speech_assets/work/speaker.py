"""The base model speaks texts for calibration, in parts, each of which is kept when it is done."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from server.engine import Generation, Sampling, open_engine
from server.text import TextEncoder
from speech_assets.quantize.calibration import (
    CalibrationError,
    SpokenText,
    pack_generations,
    read_generations,
)
from speech_assets.quantize.generations import run_generations

if TYPE_CHECKING:
    from collections.abc import Sequence

    from resources.store import Store
    from server.checkpoint import Checkpoint
    from server.engine import Engine, EngineSettings
    from speech_assets.work.worker import Reporter

PART_TEXTS = 16
"""Texts between two points at which what is finished is kept: half a minute on a CPU."""
FIRST_SEED = 4_100
"""Of the first text; the others count up from it, held-out ones go on."""


@dataclasses.dataclass(frozen=True, slots=True)
class Task:
    """One text to speak: its id, and its place in its set, which gives voice and seed."""

    id: str
    text: str
    number: int


class Speaker:
    """Speaks tasks in parts, each of which is kept; the engine is opened when it is needed."""

    def __init__(
        self,
        store: Store,
        checkpoint: Checkpoint,
        settings: EngineSettings,
        sampling: dict[str, Any],
        prefix: str,
        reporter: Reporter,
    ) -> None:
        self._store = store
        self._checkpoint = checkpoint
        self._settings = settings
        self._sampling = sampling
        self._prefix = prefix
        self._reporter = reporter
        self._encoder = TextEncoder(checkpoint.folder, checkpoint.layout)
        self._engine: Engine | None = None

    def speak(self, tasks: Sequence[Task]) -> list[SpokenText]:
        """A row of each task, in their order.

        Raises:
            CalibrationError: nothing came of a text.
            ServerError: the engine does not start, cannot run a text, or died.
        """
        rows: list[SpokenText] = []
        for start in range(0, len(tasks), PART_TEXTS):
            part = tasks[start : start + PART_TEXTS]
            key = f"{self._prefix}-{part[0].id}.jsonl.zst"
            made = self._kept(key, part)
            if made is None:
                made = self._generate(part)
                self._store.write_bytes(key, pack_generations(made))
            else:
                self._reporter.advance(len(part))
            rows += made
        return rows

    def close(self) -> None:
        """End the engine."""
        if self._engine is not None:
            self._engine.close()

    def _kept(self, key: str, part: Sequence[Task]) -> list[SpokenText] | None:
        """The rows of a part that an earlier run has finished."""
        try:
            rows = read_generations(self._store, key)
        except CalibrationError:  # Not there, or damaged: made again.
            return None
        same = [(row.id, row.text) for row in rows] == [(task.id, task.text) for task in part]
        return rows if same else None

    def _generate(self, part: Sequence[Task]) -> list[SpokenText]:
        if self._engine is None:
            self._engine = open_engine(self._checkpoint, self._settings)
        generations = [self._generation(task) for task in part]
        found = run_generations(self._engine, generations, lambda _: self._reporter.advance(1))
        rows: list[SpokenText] = []
        for task, generation in zip(part, generations, strict=True):
            made = found[task.id]
            if not made.token_ids:
                raise CalibrationError(
                    f"{task.id}: the base model ended before it said anything; check that it is a "
                    "text-to-speech model of this layout"
                )
            rows.append(
                SpokenText(
                    id=task.id,
                    text=task.text,
                    voice=self._voice(task),
                    seed=FIRST_SEED + task.number,
                    sampling=self._sampling,
                    prompt_ids=tuple(generation.prompt_ids),
                    token_ids=tuple(made.token_ids),
                    finish_reason=made.finish_reason,
                )
            )
        return rows

    def _generation(self, task: Task) -> Generation:
        try:
            prompt = self._encoder.encode(task.text, self._voice(task))
        except ValueError as error:
            raise CalibrationError(f"{task.id}: {error}") from error
        sampling = Sampling(**self._sampling, seed=FIRST_SEED + task.number)
        return Generation(task.id, prompt, sampling)

    def _voice(self, task: Task) -> str:
        voices = self._checkpoint.layout.voices
        return voices[task.number % len(voices)]
