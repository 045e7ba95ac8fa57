"""LibriTTS-R through the lineage: observed, downloaded, repacked, and a shard of it tokenized."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest
from lineage_run import StepsRun, ending, wait_for
from published import (
    Answer,
    Publisher,
    catalogue_text,
    clip_id,
    members_of,
    published,
    tar_gz,
    wav_of,
    write_catalogue,
)
from published_hub import COMMIT, hub_of, parquet_of

from resources.store import Store
from speech_assets.corpus.pins import read_pins
from speech_assets.corpus.shards import TOKEN_SCHEMA, iterate_rows
from speech_assets.definitions import build_definitions
from speech_assets.demo import run_step
from speech_assets.failure_notes import root_message
from speech_assets.step import Step

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SPLIT = "train-clean-100"
SHARD = f"{SPLIT}.000"
STEPS = (Step("archive", "archives", SPLIT), Step("tokenize", "tokens", SHARD))


@pytest.fixture(scope="module")
def wavs(short_rows: list[dict[str, Any]]) -> list[bytes]:
    return [wav_of(row) for row in short_rows[:4]]


@pytest.fixture(scope="module")
def archive(wavs: Sequence[bytes]) -> bytes:
    return tar_gz(members_of(SPLIT, wavs))


def profile_at(folder: Path, archive: bytes, url: str, origin: str) -> dict[str, str]:
    """Environment of a profile whose corpus row points at `url`; nobody published an md5."""
    text = catalogue_text({SPLIT: archive}, {SPLIT: 4}, md5=False, revision=COMMIT)
    table = folder / "profiles.toml"
    table.write_text(
        f"""
        [corpora.small]
        kind = "libritts-r"
        origin = "{origin}"
        url = "{url}"
        path = "downloads"
        catalogue = "{write_catalogue(folder, text)}"
        shard_rows = 2
        [profiles.small]
        corpus = "small"
        codec = "embedded"
        presets = []
        """
    )
    return {"SPEECH_PROFILES": str(table), "SPEECH_PROFILE": "small"}


def definitions(
    folder: Path, monkeypatch: pytest.MonkeyPatch, archive: bytes, url: str, origin: str
) -> tuple[dg.Definitions, Store]:
    """Definitions of that profile, and its store."""
    root = str(folder / "store")
    profile = profile_at(folder, archive, url, origin)
    for name, value in {**profile, "SPEECH_STORE": root}.items():
        monkeypatch.setenv(name, value)
    return build_definitions(), Store(root)


def pools(defs: dg.Definitions) -> dict[str, str | None]:
    """Pools of the assets that take long."""
    return {
        key.to_user_string(): asset.op.pool
        for asset in defs.resolve_asset_graph().assets_defs
        for key in asset.keys
        if key.to_user_string() in ("archives", "speech", "tokens")
    }


def observe(defs: dg.Definitions, instance: dg.DagsterInstance) -> str:
    """Observe the source; what went wrong, or the data version."""
    result = defs.resolve_job_def("observe_source").execute_in_process(
        instance=instance, raise_on_error=False
    )
    if not result.success:
        (failure,) = [event for event in result.all_events if event.is_step_failure]
        return root_message(failure)
    (event,) = result.get_asset_observation_events()
    return event.asset_observation_data.asset_observation.data_version or ""


def codes(store: Store) -> dict[str, list[int]]:
    key = f"tokens/{SPLIT}/{SHARD}.parquet"
    with store.open(key) as file:
        return {row["id"]: row["codes"] for row in iterate_rows(file, TOKEN_SCHEMA.names)}


def test_source_to_tokens_of_one_shard_from_archives_and_from_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wavs: list[bytes], archive: bytes
) -> None:
    made: dict[str, dict[str, list[int]]] = {}
    folder = tmp_path / "openslr"
    folder.mkdir()
    with (
        published({"/train_clean_100.tar.gz": archive}) as publisher,
        dg.DagsterInstance.ephemeral() as instance,
    ):
        defs, store = definitions(folder, monkeypatch, archive, publisher.url, "openslr")
        assert publisher.asked == []  # Loading the definitions asks nobody.
        assert pools(defs) == {"archives": "download", "speech": "cpu", "tokens": "gpu"}
        version = observe(defs, instance)
        assert len(version) == 32
        assert observe(defs, instance) == version
        publisher.script = [Answer(cut_after=len(archive) // 2)]
        for step in STEPS:
            assert run_step(defs, instance, step) == ""
        event = instance.get_latest_materialization_event(dg.AssetKey("archives"))
        metadata = event.asset_materialization.metadata
        assert metadata["dagster/row_count"].value == 4
        assert metadata["shards"].value == 2
        assert read_pins(store, SPLIT)["rows"] == 4
        assert (folder / "downloads" / "train_clean_100.tar.gz").read_bytes() == archive
        made["openslr"] = codes(store)
        assert made["openslr"].keys() == {clip_id(0), clip_id(1)}

    rows = [
        {
            "audio": {"bytes": wav, "path": f"{clip_id(number)}.wav"},
            "text_normalized": f"The text of clip {number}.",
            "text_original": f"The text of clip {number}.",
            "speaker_id": "84",
            "chapter_id": "121207",
            "path": f"{clip_id(number)}.wav",
            "id": clip_id(number),
        }
        for number, wav in enumerate(wavs)
    ]
    name = "data/train.clean.100/train.clean.100-00000-of-00001.parquet"
    folder = tmp_path / "hub"
    folder.mkdir()
    with hub_of({name: parquet_of(rows)}) as hub, dg.DagsterInstance.ephemeral() as instance:
        defs, store = definitions(folder, monkeypatch, archive, hub.url, "hub")
        assert len(observe(defs, instance)) == 32
        for step in STEPS:
            assert run_step(defs, instance, step) == ""
        made["hub"] = codes(store)
    assert made["hub"] == made["openslr"]  # One corpus, whoever publishes it.


def test_failures_are_one_line_in_the_lineage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, archive: bytes
) -> None:
    files = {"/train_clean_100.tar.gz": archive}
    with published(files) as publisher, dg.DagsterInstance.ephemeral() as instance:
        defs, _ = definitions(tmp_path, monkeypatch, archive, publisher.url, "openslr")
        assert_one_line(publisher, run_step(defs, instance, STEPS[0]), "")
        publisher.head_script = [Answer(etag='"new"')]
        assert_one_line(publisher, observe(defs, instance), 'etag was "')
        files.clear()
        publisher.files.clear()
        assert_one_line(publisher, observe(defs, instance), "404 Not Found: no such file there")


def assert_one_line(publisher: Publisher, said: str, words: str) -> None:
    assert words in said
    assert "\n" not in said.strip()
    assert bool(said) == bool(words), publisher.url


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_ended_while_it_downloads_goes_on_when_it_runs_again(
    tmp_path: Path, archive: bytes, end: signal.Signals
) -> None:
    half = len(archive) // 2
    with published({"/train_clean_100.tar.gz": archive}) as publisher:
        profile = profile_at(tmp_path, archive, publisher.url, "openslr")
        run = StepsRun(tmp_path / "run", profile, steps=STEPS[:1])
        publisher.script = [Answer(cut_after=half, hold=True)]
        part = tmp_path / "downloads" / "train_clean_100.tar.gz.part"
        with ending(run.start()) as process:
            wait_for(publisher.held.is_set, "half of the archive is sent")
            wait_for(lambda: part.exists() and part.stat().st_size == half, "it is received")
            process.send_signal(end)
            wait_for(lambda: process.poll() is not None, "the run has ended")
            run.kill(process)
        assert part.stat().st_size == half
        run.run()
        assert publisher.gets() == [None, f"bytes={half}-"]
        assert len(Store(run.root).keys(f"archives/{SPLIT}")) == 3
