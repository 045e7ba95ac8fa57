"""Training speech in memory, growing while packs arrive."""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from speech_assets.voice.held_out import HELD_OUT_IDS
from speech_assets.voice.packs import Utterance, read_packs


class SpeechPool:
    """Speech of all packs found so far, end to end on `device` (int16); held-out utterances apart.

    A thread looks for packs that were not there before every `every_s`, so that training can begin
    while speech is still being copied or made.
    """

    def __init__(
        self, folders: Mapping[Path, str], device: torch.device, *, every_s: float = 10.0
    ) -> None:
        self._folders = dict(folders)
        self._device = device
        self._every_s = every_s
        self._arrived: queue.SimpleQueue[list[Utterance]] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._found: dict[Path, set[int]] = {folder: set() for folder in self._folders}
        self.samples = torch.zeros(0, dtype=torch.int16, device=device)
        self.held: list[Utterance] = []
        self.packs = 0
        self._look()
        self.take()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    @property
    def hours(self) -> float:
        """Hours of training speech at hand."""
        return len(self.samples) / 24_000 / 3600

    def take(self) -> bool:
        """Add what has arrived since the last call; whether there was anything."""
        fresh: list[Utterance] = []
        while not self._arrived.empty():
            fresh += self._arrived.get()
            self.packs += 1
        self.held += [u for u in fresh if u.id in HELD_OUT_IDS]
        train = [u.samples for u in fresh if u.id not in HELD_OUT_IDS]
        if train:
            new = torch.from_numpy(np.concatenate(train)).to(self._device)
            self.samples = torch.cat([self.samples, new])
        return bool(fresh)

    def crops(self, count: int, length: int) -> Tensor:
        """Random crops, float32 of shape (count, 1, length), in -1..1."""
        start = torch.randint(len(self.samples) - length, (count, 1), device=self._device)
        at = start + torch.arange(length, device=self._device)
        return (self.samples[at].float() / 32768)[:, None]

    def close(self) -> None:
        """Stop looking for packs."""
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(self._every_s):
            self._look()

    def _look(self) -> None:
        for folder, voice in self._folders.items():
            found = self._found[folder]
            utterances, numbers = read_packs(folder, voice, skip=frozenset(found))
            found |= numbers
            if utterances:
                self._arrived.put(utterances)
