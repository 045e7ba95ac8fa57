"""A model of random weights, served as a trained one would be: for measuring speed alone.

The time of a step and of a decode depends on shapes, not on what the weights are. What random
weights lack is a voice's course: an utterance that ends, and silence before its first sound. Here
both are put on: a length drawn from a request's seed, and a lead-in of Orpheus' length.
"""

from __future__ import annotations

import random
import zlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from server import frames
from server.engine import Engine, EngineOutput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from server.codec_calls import Decoder, Ticket
    from server.codec_rows import DecodeRow
    from server.engine import Generation
    from server.errors import ServerError
    from server.frames import TokenLayout

MEAN_S = 10.0  # Of speech in an utterance,
SHAPE = 6.0  # gamma-distributed, so that the middle half is of 7.0 to 12.4 s.
SHORTEST_S, LONGEST_S = 1.0, 21.0
LEAD_IN_FRAMES = 7  # 0.6 s: what Orpheus begins with.
_LETTERS_PER_ID = 4  # What a tokenizer of 128,000 ids takes of English text.


def spoken_frames(seed: int) -> int:
    """Frames of an utterance with its lead-in, drawn from a request's seed."""
    drawn_s = random.Random(f"length of {seed}").gammavariate(SHAPE, MEAN_S / SHAPE)
    spoken_s = min(max(drawn_s, SHORTEST_S), LONGEST_S)
    return LEAD_IN_FRAMES + round(spoken_s * frames.FRAMES_PER_S)


class MadeUpIds:
    """A front end without a tokenizer: an id for each four letters, the same for the same ones."""

    emotions = ()
    reads = True

    def __init__(self, layout: TokenLayout) -> None:
        self._count = layout.begin_of_text or layout.audio_base

    def ids(self, text: str, voice: str) -> list[int]:
        """Ids of ``voice: text``; none for a text without a letter or a digit."""
        if not any(map(str.isalnum, text)):
            return []
        said = f"{voice}: {' '.join(text.split())}"
        starts = range(0, len(said), _LETTERS_PER_ID)
        pieces = (said[n : n + _LETTERS_PER_ID].encode() for n in starts)
        return [zlib.crc32(piece) % self._count for piece in pieces]


@dataclass(slots=True)
class _Utterance:
    """What a request asked for and has been given, and the tokens after which it ends."""

    generation: Generation
    drawn: int
    token_ids: list[int] = field(default_factory=list[int])
    times: int = 0  # It has been asked of the engine.


class UntrainedEngine(Engine):
    """An engine whose utterances end at a drawn length, as by end_of_speech, and not before.

    Random weights draw end_of_speech once in some 4,000 frames; the utterance then goes on from
    what it has, under another id: a step that is on its way may still give something to the first.
    """

    def __init__(self, engine: Engine, layout: TokenLayout) -> None:
        self._engine, self._layout = engine, layout
        self.facts = engine.facts
        self._running: dict[str, _Utterance] = {}  # By the engine's id.
        self._ids: dict[str, str] = {}  # The engine's id of each request.

    def add(self, generation: Generation) -> None:
        sampling, layout = generation.sampling, self._layout
        audio_ids = range(layout.audio_base, layout.audio_end)
        made = sum(n in audio_ids for n in generation.prompt_ids)  # Of one that was paused.
        drawn = max(1, spoken_frames(sampling.seed) * frames.TOKENS_PER_FRAME - made)
        self._add(_Utterance(generation, drawn))

    def abort(self, request_ids: Iterable[str]) -> None:
        ids = [self._ids.pop(name) for name in request_ids if name in self._ids]
        for engine_id in ids:
            del self._running[engine_id]
        self._engine.abort(ids)

    def step(self) -> list[EngineOutput]:
        given: list[EngineOutput] = []
        for output in self._engine.step():
            if (utterance := self._running.get(output.request_id)) is None:
                continue
            name, reason = utterance.generation.request_id, output.finish_reason
            utterance.token_ids += output.token_ids
            made, most = len(utterance.token_ids), utterance.generation.sampling.max_tokens
            if reason is not None:
                del self._running[output.request_id], self._ids[name]
                if made >= utterance.drawn:
                    reason = "stop"
                elif reason == "stop" and made < most:
                    reason = None
                    self._add(utterance)
            if reason is not output.finish_reason or name != output.request_id:
                output = replace(output, request_id=name, finish_reason=reason)
            given.append(output)
        return given

    def _add(self, utterance: _Utterance) -> None:
        """Have the engine go on with an utterance, from nothing or from what there is of it."""
        asked, made = utterance.generation, utterance.token_ids
        utterance.times += 1
        name = asked.request_id
        engine_id = name if utterance.times == 1 else f"{name}#{utterance.times}"
        most = min(utterance.drawn, asked.sampling.max_tokens) - len(made)
        self._engine.add(
            replace(
                asked,
                request_id=engine_id,
                prompt_ids=[*asked.prompt_ids, *made],
                sampling=replace(asked.sampling, max_tokens=most),
            )
        )
        self._running[engine_id], self._ids[asked.request_id] = utterance, engine_id

    @property
    def busy(self) -> bool:
        return self._engine.busy

    def close(self) -> None:
        self._engine.close()


class UntrainedDecoder:
    """A codec of random weights that is silent during the lead-in."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder

    def warm_up(self) -> None:
        """Make ready all that `submit` can meet."""
        self._decoder.warm_up()

    def submit(self, rows: Sequence[DecodeRow], hop: int) -> UntrainedTicket:
        """Start decoding rows of one hop, as `Decoder.submit`."""
        return UntrainedTicket(self._decoder.submit(rows, hop), rows)

    def watch(self, hear: Callable[[ServerError | None], None]) -> None:
        """Have `hear` called, as `Decoder.watch`."""
        self._decoder.watch(hear)

    def close(self) -> None:
        """End what runs, and release all."""
        self._decoder.close()


class UntrainedTicket:
    """Audio of submitted rows, as `codec_calls.Ticket`."""

    def __init__(self, ticket: Ticket, rows: Sequence[DecodeRow]) -> None:
        self._ticket, self._rows = ticket, rows

    def ready(self) -> bool:
        """Whether `pcm` returns at once."""
        return self._ticket.ready()

    def pcm(self) -> list[NDArray[np.int16]]:
        """Samples of each row, int16 of shape (512 * row.latents,), 0 where the lead-in is."""
        blocks = self._ticket.pcm()
        silent = LEAD_IN_FRAMES * frames.LATENTS_PER_FRAME
        for row, samples in zip(self._rows, blocks, strict=True):
            if row.start < silent:
                samples[: (silent - row.start) * frames.SAMPLES_PER_LATENT] = 0
        return blocks
