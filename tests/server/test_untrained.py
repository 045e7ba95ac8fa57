"""Random weights are served as a voice would be: utterances of drawn lengths, silence before."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

import httpx
import numpy as np
import pytest
from speech_servers import TIMEOUT_S, metric

from resources.speech_server import SpeechServer
from server import frames
from server.checkpoint import open_shape
from server.engine import Engine, EngineFacts, EngineOutput, Generation, Sampling
from server.errors import WeightsError
from server.files import read_json
from server.frames import ORPHEUS
from server.presets import load_presets
from server.recipe import Recipe
from server.text import TextEncoder
from server.untrained import (
    LEAD_IN_FRAMES,
    LONGEST_S,
    MEAN_S,
    SHORTEST_S,
    MadeUpIds,
    UntrainedEngine,
    spoken_frames,
)
from speech_assets.load.sweep import SweepOptions
from speech_assets.quantize.schemes import quantization_config
from speech_assets.quantize.shapes import SHAPES, write_shape
from speech_assets.sentences import LONG_SENTENCES, SENTENCES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

TABLE = "server/untrained_presets.toml"
QUIET, LOUD = 1, 300


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SpeechServer]:
    """A server of a small shape and of the codec's, both without weights."""
    folder = tmp_path_factory.mktemp("untrained")
    for name in ("model", "codec"):
        (folder / name).mkdir()
    write_shape(folder / "model", SHAPES["orpheus-tiny"], "bf16", None)
    codec = load_presets({})["embedded-bf16"].codec_location().folder
    assert codec is not None
    (folder / "codec" / "config.json").write_bytes((codec / "config.json").read_bytes())
    (folder / "presets.toml").write_text(
        """
        [presets.noise]
        model = "model"
        codec = "codec"
        untrained = true
        cpu_dtype = "auto"
        max_model_len = 2048
        tick_frames = 8
        """
    )
    environment = {"SPEECH_PRESETS": str(folder / "presets.toml"), "OMP_NUM_THREADS": "1"}
    with SpeechServer.running("noise", environment=environment) as running:
        yield running


def spoken(server: SpeechServer, seed: int) -> np.ndarray:
    """Samples of one answer, its silence kept."""
    answer = httpx.post(
        f"{server.url}/v1/audio/speech",
        json={
            "model": "noise",
            "input": LONG_SENTENCES[0],
            "voice": "tara",
            "response_format": "pcm",
            "seed": seed,
            "lead_in": "keep",
        },
        timeout=TIMEOUT_S,
    )
    assert answer.status_code == 200, answer.text
    return np.frombuffer(answer.content, "<i2")


def test_an_utterance_is_as_long_as_was_drawn_and_begins_with_silence(server: SpeechServer) -> None:
    seeds = sorted(range(40), key=spoken_frames)[:2]
    for seed in seeds:
        samples = spoken(server, seed)
        assert len(samples) == spoken_frames(seed) * frames.SAMPLES_PER_FRAME
        lead_in = LEAD_IN_FRAMES * frames.SAMPLES_PER_FRAME
        assert np.abs(samples[:lead_in]).max() < QUIET
        assert np.abs(samples[lead_in : lead_in + frames.SAMPLES_PER_FRAME]).max() > LOUD
    assert metric(server, "speech_requests_total", outcome="stop") == len(seeds)


class Ending(Engine):
    """Gives each request a token a step, and ends it by itself after its third."""

    facts = EngineFacts(
        *("0", "in_process", "audio", "enforced", "slot", "vllm", "float32", "cpu", 1, 99, 9)
    )

    def __init__(self) -> None:
        self.asked: list[Generation] = []
        self._given: dict[str, int] = {}

    def add(self, generation: Generation) -> None:
        self.asked.append(generation)
        self._given[generation.request_id] = 0

    def abort(self, request_ids: Iterable[str]) -> None:
        for name in request_ids:
            del self._given[name]

    def step(self) -> list[EngineOutput]:
        outputs: list[EngineOutput] = []
        for name, given in list(self._given.items()):
            most = self.asked[-1].sampling.max_tokens
            reason = "stop" if given == 2 else "length" if given + 1 == most else None
            self._given[name] = given + 1
            if reason is not None:
                del self._given[name]
            token = ORPHEUS.audio_base + given
            outputs.append(EngineOutput(name, [token], reason))  # type: ignore[arg-type]
        return outputs

    @property
    def busy(self) -> bool:
        return bool(self._given)

    def close(self) -> None:
        """Nothing is held."""


@pytest.mark.parametrize(("most", "reason"), [(2_000, "stop"), (50, "length")])
def test_an_end_that_comes_by_chance_is_passed_over(most: int, reason: str) -> None:
    inner = Ending()
    engine = UntrainedEngine(inner, ORPHEUS)
    engine.add(Generation("r", [1, 2], Sampling(seed=3, max_tokens=most)))
    outputs: list[EngineOutput] = []
    while engine.busy:
        outputs += engine.step()
    drawn = spoken_frames(3) * frames.TOKENS_PER_FRAME
    assert len(outputs) == min(most, drawn)
    assert [output.finish_reason for output in outputs] == [None] * (len(outputs) - 1) + [reason]
    # Each time it goes on from all that it has had.
    assert [len(asked.prompt_ids) for asked in inner.asked] == [
        2 + given for given in range(0, len(outputs), 3)
    ]
    assert inner.asked[1].prompt_ids[2:] == [ORPHEUS.audio_base + n for n in range(3)]


def test_what_went_on_under_another_id_is_aborted_by_its_own() -> None:
    inner = Ending()
    engine = UntrainedEngine(inner, ORPHEUS)
    for name, seed in (("r", 3), ("other", 4)):
        engine.add(Generation(name, [1, 2], Sampling(seed=seed, max_tokens=2_000)))
    while len(inner.asked) < 4:
        engine.step()
    assert {asked.request_id for asked in inner.asked[2:]} == {"r#2", "other#2"}
    engine.abort(["r"])
    assert {output.request_id for output in engine.step()} == {"other"}
    engine.abort(["other", "r"])  # One that has ended is passed over.
    assert not engine.busy


def test_a_paused_utterance_goes_on_to_the_same_end() -> None:
    drawn = spoken_frames(3) * frames.TOKENS_PER_FRAME
    had = [ORPHEUS.audio_base + n % 7 for n in range(frames.TOKENS_PER_FRAME)]
    engine = UntrainedEngine(Ending(), ORPHEUS)
    engine.add(Generation("r", [1, 2, *had], Sampling(seed=3, max_tokens=2_000)))
    outputs: list[EngineOutput] = []
    while engine.busy:
        outputs += engine.step()
    assert len(outputs) == drawn - len(had)
    assert outputs[-1].finish_reason == "stop"


def test_the_config_says_that_the_weights_are_random(server: SpeechServer) -> None:
    config = server.config()
    assert config["settings"]["untrained"] is True


def test_a_folder_with_weights_is_not_served_as_random_ones(tmp_path: Path) -> None:
    checkpoint = write_shape(tmp_path, SHAPES["orpheus-tiny"], "bf16", None)
    assert open_shape(tmp_path).untrained
    (checkpoint.folder / "model.safetensors").touch()
    with pytest.raises(WeightsError, match="holds weights, and an untrained preset would serve"):
        open_shape(tmp_path)


def test_drawn_lengths_are_of_ten_seconds_in_the_mean() -> None:
    spoken_s = [(spoken_frames(n) - LEAD_IN_FRAMES) / frames.FRAMES_PER_S for n in range(4_000)]
    assert statistics.mean(spoken_s) == pytest.approx(MEAN_S, rel=0.02)
    assert SHORTEST_S - 0.1 < min(spoken_s) < 3
    assert 18 < max(spoken_s) < LONGEST_S + 0.1
    assert spoken_frames(1) == spoken_frames(1) != spoken_frames(2)


def test_made_up_ids_are_the_same_for_the_same_text_and_within_the_text_ids() -> None:
    front_end = MadeUpIds(ORPHEUS)
    text = TextEncoder(None, ORPHEUS, front_end)  # type: ignore[arg-type]
    prompt = text.encode(SENTENCES[0], "tara")
    assert prompt == text.encode(SENTENCES[0], "tara") != text.encode(SENTENCES[1], "tara")
    ids = front_end.ids(SENTENCES[0], "tara")
    assert len(ids) == -(-len(f"tara: {SENTENCES[0]}") // 4)
    assert all(0 <= n < 128_000 for n in ids)


@pytest.mark.parametrize(("folder", "scheme"), [("orpheus_3b", "bf16"), ("orpheus_3b_fp8", "fp8")])
def test_the_shapes_that_ship_are_orpheus_own(folder: str, scheme: str) -> None:
    presets = load_presets({"SPEECH_PRESETS": TABLE})
    base = presets["untrained-bf16"].base
    recipe = Recipe(scheme)  # type: ignore[arg-type]
    quantization = None if scheme == "bf16" else quantization_config(recipe)
    expected = SHAPES["orpheus-3b"].config(quantization, tied=True)
    assert read_json(base / folder / "config.json") == expected
    served = [preset.model for preset in presets.values() if preset.untrained]
    assert folder in served


def test_a_load_test_of_random_weights_asks_for_texts_that_no_guard_cuts() -> None:
    from server.guards import Guard
    from server.pieces import LONGEST_PIECE, pieces, spoken_characters
    from server.written import in_words

    assert not SweepOptions((1.0,)).long_texts
    for text in LONG_SENTENCES:
        assert len(list(pieces(text, in_words, LONGEST_PIECE))) == 1
        lead_in_s = LEAD_IN_FRAMES / frames.FRAMES_PER_S
        assert Guard(spoken_characters(text)).longest_s > LONGEST_S + lead_in_s
