"""The corpus half of the lineage in Dagster: its shape, a whole run on real speech, failures."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import SHORT_SHARDS
from datasets import load_dataset

from resources.store import Store
from speech_assets.assets.checks import TOKEN_CHECKS, check_shards
from speech_assets.corpus.card import CARD_KEY
from speech_assets.corpus.manifest import build_manifest, faults, manifest_key
from speech_assets.corpus.shards import TOKEN_SCHEMA
from speech_assets.definitions import build_definitions
from speech_assets.demo import demo_steps, run_step, summary
from speech_assets.errors import ShardError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SPLITS = {"train": ["train.000", "train.001", "train.002"], "dev": ["dev.000"]}


@pytest.fixture(scope="module")
def lineage(
    short_profile: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[dg.Definitions, dg.DagsterInstance, Store]]:
    """The whole corpus half, run once through its jobs."""
    root = str(tmp_path_factory.mktemp("store"))
    with pytest.MonkeyPatch.context() as environment:
        for name, value in {**short_profile, "SPEECH_STORE": root}.items():
            environment.setenv(name, value)
        defs = build_definitions()
        with dg.DagsterInstance.ephemeral() as instance:
            for step in demo_steps(SPLITS):
                assert run_step(defs, instance, step) == ""
            yield defs, instance, Store(root)


def test_the_graph_has_the_shape_that_the_design_gives(
    monkeypatch: pytest.MonkeyPatch, short_profile: dict[str, str]
) -> None:
    for name, value in short_profile.items():
        monkeypatch.setenv(name, value)
    defs = build_definitions()
    dg.Definitions.validate_loadable(defs)
    graph = defs.resolve_asset_graph()
    parents = {
        key.to_user_string(): sorted(
            parent.to_user_string() for parent in graph.get(key).parent_keys
        )
        for key in graph.get_all_asset_keys()
        if not key.to_user_string().startswith("voice_")  # tests/test_voice_assets.py
    }
    assert parents == {
        "source": [],
        "archives": ["source"],
        "speech": ["archives"],
        "tokens": ["speech"],
        "manifest": ["tokens"],
        "dataset_card": ["manifest"],
        "base_model": [],
        "calibration": ["base_model"],
        "checkpoints": ["base_model", "calibration"],
        "fidelity": ["calibration", "checkpoints"],
        "decode_speed": ["checkpoints"],
        "base_codec": [],
        "codec_checkpoints": ["base_codec"],
        "samples": ["fidelity"],
        "wer": ["samples"],
        "report": [
            *("ab", "codec_checkpoints", "dataset_card", "decode_speed", "fidelity", "ladder"),
            *("load_tests", "samples", "wer"),
        ],
        "ab": ["codec_checkpoints", "fidelity"],
        "load_tests": ["fidelity"],
        "ladder": [],
    }
    tokens = graph.get(dg.AssetKey("tokens"))
    assert tokens.partitions_def is not None
    assert tokens.partitions_def.get_partition_keys() == [s.key for s in SHORT_SHARDS]
    assert tokens.backfill_policy == dg.BackfillPolicy.multi_run(max_partitions_per_run=16)
    assert {check.name for check in tokens.check_keys} == {check.name for check in TOKEN_CHECKS}
    jobs = {job.name for job in defs.resolve_all_job_defs()}
    assert {"archive", "tokenize", "describe_split", "describe_dataset"} <= jobs


def test_heavy_assets_wait_in_their_pools(lineage: tuple) -> None:
    defs, _, _ = lineage
    pools = {
        key.to_user_string(): asset.op.pool
        for asset in defs.resolve_asset_graph().assets_defs
        if asset.is_executable
        for key in asset.keys
    }
    assert pools["speech"] == pools["archives"] == "cpu"
    assert pools["tokens"] == "gpu"


def test_every_shard_is_materialized_with_plain_figures(lineage: tuple) -> None:
    _, instance, _ = lineage
    for asset in ("speech", "tokens"):
        done = instance.get_materialized_partitions(dg.AssetKey(asset))
        assert done == {shard.key for shard in SHORT_SHARDS}
    event = instance.get_latest_materialization_event(dg.AssetKey("tokens"))
    metadata = event.asset_materialization.metadata
    for name in ("audio_hours", "agreement", "agreement_level_2", "log_mel_distance_db"):
        assert isinstance(metadata[name].value, float)
    for name in ("run_hours_per_min", "run_device_busy_share", "run_peak_memory_gib"):
        assert metadata[name].value > 0
    assert metadata["agreement"].value == 1.0


def test_the_manifest_adds_up(lineage: tuple, short_rows: list[dict]) -> None:
    _, _, store = lineage
    made = {split: store.read_json(manifest_key(split)) for split in SPLITS}
    rows = sum(m["totals"]["rows"] + m["totals"]["quarantined_rows"] for m in made.values())
    assert rows == len(short_rows)
    train = made["train"]
    assert faults(train) == []
    assert train["totals"]["tokens"] == 7 * train["totals"]["frames"]
    assert train["totals"]["duplicate_ids"] == 0
    hours = sum(entry["audio_hours"] for entry in train["shards"])
    assert train["totals"]["audio_hours"] == pytest.approx(hours)
    # The codec's 295,312 tokens an hour, and up to a frame of padding a clip.
    least = 295_312
    assert least <= train["totals"]["tokens_per_hour"] <= least * 1.2


def test_the_card_is_a_dataset_that_loads_as_it_is(lineage: tuple, tmp_path: Path) -> None:
    _, _, store = lineage
    text = store.read_bytes(CARD_KEY).decode()
    assert "CC" in text
    assert "snac-5.1M-" in text
    assert "ntrained" not in text
    loaded = load_dataset(store.path("tokens"), cache_dir=str(tmp_path))
    assert set(loaded) == set(SPLITS)
    row = loaded["train"][0]
    assert len(row["codes"]) == 7 * row["frame_count"]
    direct = load_dataset(
        "parquet",
        data_files=store.path("tokens/train/*.parquet"),
        cache_dir=str(tmp_path),
        split="train",
    )
    assert direct["id"] == loaded["train"]["id"]


def test_the_summary_says_what_was_made(lineage: tuple) -> None:
    _, _, store = lineage
    text = summary(store, list(SPLITS), 12.0)
    assert "codes of clips encoded alone: 100.00%" in text
    assert "train" in text
    assert "make ui" in text


def test_a_second_run_makes_nothing_anew(lineage: tuple) -> None:
    defs, instance, store = lineage
    before = {key: store.read_bytes(key) for key in store.keys("")}
    for step in demo_steps(SPLITS):
        assert run_step(defs, instance, step) == ""
    assert {key: store.read_bytes(key) for key in store.keys("")} == before
    event = instance.get_latest_materialization_event(dg.AssetKey("tokens"))
    assert event.asset_materialization.metadata["skipped_because_valid"].value is True


def test_a_missing_archive_fails_at_once_and_the_other_shards_are_kept(
    lineage: tuple, tmp_path: Path
) -> None:
    defs, _, store = lineage
    copy = Store(str(tmp_path / "store"))
    for key in store.keys("archives"):
        if "train.001" not in key:
            copy.write_bytes(key, store.read_bytes(key))
    with dg.DagsterInstance.ephemeral() as instance:
        result = defs.resolve_job_def("tokenize").execute_in_process(
            instance=instance,
            asset_selection=[dg.AssetKey("speech")],
            tags={
                "dagster/asset_partition_range_start": "train.000",
                "dagster/asset_partition_range_end": "dev.000",
            },
            run_config={"resources": {"store": {"config": {"root": copy.root}}}},
            raise_on_error=False,
        )
        assert not result.success
        retried = [event for event in result.all_events if event.is_step_up_for_retry]
        assert retried == []
        failure = next(event for event in result.all_events if event.is_step_failure)
        message = failure.event_specific_data.error.message
        assert (
            "train.001.parquet is not there; materialize archives of split 'train' first" in message
        )
        done = instance.get_materialized_partitions(dg.AssetKey("speech"))
        assert done == {"train.000", "train.002", "dev.000"}


def test_the_demo_hands_on_the_projects_own_message(lineage: tuple, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    step = demo_steps(SPLITS)[0]
    with pytest.MonkeyPatch.context() as environment, dg.DagsterInstance.ephemeral() as instance:
        environment.setenv("SPEECH_STORE", str(tmp_path / "file"))
        message = run_step(build_definitions(), instance, step)
    assert message.startswith("cannot ")
    assert "SPEECH_STORE" in message or "Not a directory" in message


def spoil(store: Store, copy: Store, change: object) -> None:
    """A copy of dev.000 whose table `change` has altered."""
    key = SHORT_SHARDS[3].object_key("tokens")
    with store.open(key) as file:
        table = pq.read_table(file)
    altered = change(table)  # pyright: ignore[reportCallIssue]
    copy.write(key, lambda file: pq.write_table(altered, file))


def with_column(table: pa.Table, name: str, values: list) -> pa.Table:
    at = table.schema.get_field_index(name)
    return table.set_column(
        at, TOKEN_SCHEMA.field(name), pa.array(values, TOKEN_SCHEMA.field(name).type)
    )


def first_code(table: pa.Table, value: int) -> pa.Table:
    codes = table["codes"].to_pylist()
    codes[0][0] = value
    return with_column(table, "codes", codes)


def figures(table: pa.Table, **changed: float) -> pa.Table:
    metadata = dict(table.schema.metadata)
    held = json.loads(metadata[b"speech_assets.figures"])
    metadata[b"speech_assets.figures"] = json.dumps({**held, **changed}).encode()
    return table.replace_schema_metadata(metadata)


@pytest.mark.parametrize(
    ("check", "change", "says"),
    [
        ("well_formed", lambda t: first_code(t, 4_096), "code 4096 is above 4095"),
        (
            "well_formed",
            lambda t: with_column(t, "codes", [c[:-1] for c in t["codes"].to_pylist()]),
            "codes are not 7 a frame",
        ),
        (
            "well_formed",
            lambda t: with_column(
                t, "sample_count", [n + 2_048 for n in t["sample_count"].to_pylist()]
            ),
            "frame_count does not fit",
        ),
        (
            "well_formed",
            lambda t: with_column(t, "id", ["same"] * t.num_rows),
            "an id is there twice",
        ),
        ("no_silent_clip", lambda t: figures(t, silent_clips=2), "2 clips are silent"),
        ("agreement", lambda t: figures(t, agreement_level_1=0.99), "level 1 99.0000% < 100.00%"),
        ("fidelity", lambda t: figures(t, log_mel_distance_db=30.0), "log-mel distance 30.00 dB"),
        ("fidelity", lambda t: figures(t, envelope_correlation=float("nan")), "correlation nan"),
    ],
)
def test_each_check_can_fail(
    lineage: tuple, tmp_path: Path, check: str, change: object, says: str
) -> None:
    _, _, store = lineage
    copy = Store(str(tmp_path))
    spoil(store, copy, change)
    results = {r.check_name: r for r in check_shards(copy, [SHORT_SHARDS[3]])}
    assert not results[check].passed
    assert says in results[check].metadata["faults"].value["dev.000"]
    others = [r.passed for name, r in results.items() if name != check]
    assert all(others)


def test_fidelity_does_not_block_an_untrained_codec(lineage: tuple, tmp_path: Path) -> None:
    _, _, store = lineage
    copy = Store(str(tmp_path))

    def untrained(table: pa.Table) -> pa.Table:
        altered = figures(table, log_mel_distance_db=40.0)
        metadata = {**altered.schema.metadata, b"speech_assets.codec_trained": b"untrained"}
        return altered.replace_schema_metadata(metadata)

    spoil(store, copy, untrained)
    assert all(result.passed for result in check_shards(copy, [SHORT_SHARDS[3]]))


def test_a_manifest_needs_every_shard_and_one_codec(lineage: tuple, tmp_path: Path) -> None:
    _, _, store = lineage
    copy = Store(str(tmp_path))
    for key in store.keys(""):
        copy.write_bytes(key, store.read_bytes(key))
    key = SHORT_SHARDS[1].object_key("tokens")
    with store.open(key) as file:
        table = pq.read_table(file)
    metadata = {**table.schema.metadata, b"speech_assets.codec_weights_sha256": b"0" * 64}
    copy.write(key, lambda file: pq.write_table(table.replace_schema_metadata(metadata), file))
    with pytest.raises(ShardError, match=r"more than one codec_weights_sha256.*train\.001"):
        build_manifest(copy, "short", "train", SPLITS["train"])
    copy.delete(key)
    with pytest.raises(ShardError, match=r"1 of 3 token shards are missing \(train\.001\)"):
        build_manifest(copy, "short", "train", SPLITS["train"])


def test_lost_and_doubled_rows_are_faults_of_the_manifest(lineage: tuple) -> None:
    _, _, store = lineage
    made = store.read_json(manifest_key("train"))
    made["shards"][0]["rows"] -= 1
    made["totals"]["duplicate_ids"] = 1
    found = faults(made)
    assert len(found) == 2
    assert "train.000" in found[0]
    assert "twice" in found[1]


def test_tokens_without_what_they_were_made_from_have_no_manifest(
    lineage: tuple, tmp_path: Path
) -> None:
    defs, _, store = lineage
    copy = Store(str(tmp_path))
    for key in store.keys(""):
        if not key.startswith("quarantine"):
            copy.write_bytes(key, store.read_bytes(key))
    with dg.DagsterInstance.ephemeral() as instance:
        result = defs.resolve_job_def("describe_split").execute_in_process(
            instance=instance,
            partition_key="train",
            run_config={"resources": {"store": {"config": {"root": copy.root}}}},
            raise_on_error=False,
        )
    failure = next(event for event in result.all_events if event.is_step_failure)
    message = failure.step_failure_data.error.message
    assert "quarantine/speech/train.000.parquet is missing" in message
    assert "materialize archives and speech of it again" in message
