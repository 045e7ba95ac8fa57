"""The whole pipeline on the corpus that ships, cut short: real processes, speech and codes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import psutil
import pytest
import torch
from conftest import CODEC, SHORT_SHARDS, archive_short_corpus
from lineage_run import processes_with

from resources.errors import WorkError
from resources.store import Store
from server.codec import load_codec
from speech_assets.errors import ConfigError
from speech_assets.results.forms import check_form
from speech_assets.results.result import Result
from speech_assets.results.tables import pipeline_table
from speech_assets.work import whole_pipeline
from speech_assets.work.ablation import Recorder
from speech_assets.work.decoding_pool import DecodingPool, SpeechOptions
from speech_assets.work.speech_makers import Maker, SpeechMakers, speech_makers
from speech_assets.work.speech_shards import make_shards
from speech_assets.work.token_shards import read_speech
from speech_assets.work.tokenize_backfill import own_loop
from speech_assets.work.tokenizer import EncodeOptions, Tokenizer
from speech_assets.work.tokens import tokenize_shards
from speech_assets.work.whole_pipeline import Pipeline, one_clip_each

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from speech_assets.profiles import Corpus

MARK = "SPEECH_TEST_MARK"


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A variable by which the test's processes are known; none of them is left after it."""
    value = uuid.uuid4().hex
    monkeypatch.setenv(MARK, value)
    yield value
    for process in processes_with(MARK, value):
        with contextlib.suppress(psutil.Error):
            process.kill()


@pytest.fixture
def store(tmp_path: Path, short_corpus: Corpus) -> Store:
    return archive_short_corpus(str(tmp_path / "store"), short_corpus)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    torch.set_num_threads(1)
    return Tokenizer(load_codec(CODEC), EncodeOptions(0))


@pytest.mark.timeout(300)
def test_a_whole_pipeline_makes_the_shards_that_its_stages_make_one_after_the_other(
    tmp_path: Path, store: Store, tokenizer: Tokenizer
) -> None:
    with DecodingPool(1, SpeechOptions()) as pool:
        list(make_shards(store, SHORT_SHARDS, SpeechOptions(), pool))
    own_loop(store, tokenizer)(SHORT_SHARDS)
    keys = [shard.object_key(asset) for shard in SHORT_SHARDS for asset in ("speech", "tokens")]
    apart = {key: store.read_bytes(key) for key in keys}
    speech = [read_speech(store, shard) for shard in SHORT_SHARDS]
    clips = one_clip_each(tmp_path / "start", 2)
    pipeline = Pipeline(store, tokenizer, speech, SpeechOptions().max_clip_s, 2, clips)
    rows = whole_pipeline.measure(pipeline, 1, lambda _: None)
    assert {key: store.read_bytes(key) for key in keys} == apart
    figures = whole_pipeline.figures_of(rows, pipeline.audio_min, 1.0)
    assert figures["share_of_encoder"].value > 0
    assert figures["agreement"].value == 1.0
    assert figures["speech_hours_per_min"].value > 0
    value = Result(
        kind=whole_pipeline.KIND,
        name="snac",
        started_at="2026-11-30T00:00:00Z",
        device={"name": "A CPU"},
        command="a test",
        config={
            "codec": "snac",
            "trained": True,
            "cores": 2,
            "speech_processes": 2,
            "decoding_processes": 2,
        },
        rows=rows,
        figures=figures,
    ).as_json()
    check_form(json.dumps(value).encode(), "the test's")
    assert "| snac | 2 | 2 x 1 |" in pipeline_table([value])
    assert "*once started* is without it" in pipeline_table([value])
    assert pipeline_table([]) == "No result is published yet."


@pytest.mark.timeout(120)
def test_a_speech_process_that_is_killed_ends_the_tokens_loop_and_leaves_no_process(
    store: Store, tokenizer: Tokenizer, mark: str
) -> None:
    def killed() -> None:
        with speech_makers(store, SHORT_SHARDS, processes=2, decoders=1, max_clip_s=60.0) as makers:
            assert len(processes_with(MARK, mark)) >= 2
            os.kill(makers.makers[1].process.process.pid, signal.SIGKILL)
            tokenize_shards(store, SHORT_SHARDS, tokenizer, Recorder("tokens"), arriving=makers)

    with pytest.raises(WorkError, match=r"work\.speech was killed by signal 9"):
        killed()
    assert not processes_with(MARK, mark)


@pytest.mark.timeout(120)
def test_a_shard_whose_speech_cannot_be_made_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(WorkError, match=r"train\.000\.parquet is not there; materialize archives"),
        speech_makers(
            Store(str(tmp_path)), SHORT_SHARDS[:1], processes=1, decoders=1, max_clip_s=60.0
        ) as makers,
    ):
        makers.take()


def test_who_waits_for_speech_is_told_when_it_is_not_wanted_any_more(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        maker = Maker(cast("Any", SimpleNamespace(process=process)), list(SHORT_SHARDS[:1]))
        makers = SpeechMakers(Store(str(tmp_path)), [maker])
        with ThreadPoolExecutor(2) as readers:
            waiting = [readers.submit(makers.take) for _ in range(2)]
            makers.close()
            for reader in waiting:
                with pytest.raises(WorkError, match="not waited for any more"):
                    reader.result()
        process.kill()


def test_who_asks_for_more_speech_than_there_is_does_not_wait(tmp_path: Path) -> None:
    with pytest.raises(WorkError, match="every shard has been taken; none is to come"):
        SpeechMakers(Store(str(tmp_path)), []).take()


def test_of_a_run_no_longer_than_its_start_no_share_is_told() -> None:
    row = {
        "pipeline_s": 4.0,
        "encoder_s": 2.0,
        "start_s": 1.0,
        "speech_hours_per_min": 1.0,
        "tokens_hours_per_min": 1.0,
    }
    whole = whole_pipeline.figures_of([row], 60.0, 1.0)
    assert whole["share_once_started"].value == pytest.approx(2 / 3)
    assert whole["share_of_encoder"].value == pytest.approx(0.5)
    short = whole_pipeline.figures_of([row, {**row, "start_s": 5.0}], 60.0, 1.0)
    assert "share_once_started" not in short


def test_each_process_needs_shards_to_be_measured_by(
    tmp_path: Path, store: Store, tokenizer: Tokenizer
) -> None:
    with pytest.raises(ConfigError, match="2 speech processes need 2 shards each, there are 0"):
        Pipeline(store, tokenizer, [], 60.0, 2, one_clip_each(tmp_path / "start", 2))
