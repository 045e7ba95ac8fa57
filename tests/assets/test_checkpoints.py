"""Checkpoints in Dagster: from the base model to a preset that a server takes, or refuses."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import httpx
import pytest

from resources.configured import WorkResource
from resources.errors import WorkError
from resources.speech_server import SpeechServer
from resources.store import Store
from server.checks import RECORD_FILE, REQUIRED, read_checks, weights_sha256
from server.files import read_json
from server.presets import load_preset, served_as
from speech_assets.definitions import build_definitions
from speech_assets.demo import CHECK_FAILED, passed_over, run_step
from speech_assets.demo_checkpoints import checkpoint_lines, checkpoint_steps
from speech_assets.step import Step

if TYPE_CHECKING:
    from collections.abc import Iterator

PRESETS = ("embedded-bf16", "embedded-fp8", "embedded-fp8-kv")
FEW = {"calibration": {"texts": 2, "held_out": 2, "max_tokens": 150}}
SHORT = {"decode_speed": {"tokens": 42, "runs": 1, "allow_invalid": True}}
Made = tuple[dg.DagsterInstance, Store]
pytestmark = [pytest.mark.timeout(900), pytest.mark.filterwarnings("ignore")]


def config(values: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {"ops": {asset: {"config": row} for asset, row in values.items()}}


@pytest.fixture(scope="module")
def made(short_profile: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    """A profile of three presets, the second of whose weights the third serves, all made."""
    folder = tmp_path_factory.mktemp("checkpoints")
    profiles = Path(short_profile["SPEECH_PROFILES"]).read_text()
    names = ", ".join(f'"{name}"' for name in PRESETS)
    (folder / "profiles.toml").write_text(profiles.replace("presets = []", f"presets = [{names}]"))
    store = Store(str(folder / "store"))
    environment = {
        "SPEECH_PROFILES": str(folder / "profiles.toml"),
        "SPEECH_PROFILE": "short",
        "SPEECH_STORE": store.root,
        "TMPDIR": str(tmp_path_factory.mktemp("locks")),  # Of devices: no other work holds one.
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        defs = build_definitions()
        with dg.DagsterInstance.ephemeral() as instance:
            assert run_step(defs, instance, Step("calibrate", "", config=config(FEW))) == ""
            # The one that serves another's weights first: it has them made.
            for name in (PRESETS[2], PRESETS[1], PRESETS[0]):
                assert run_step(defs, instance, Step("make_checkpoint", "", name)) == ""
            speed = Step("time_decoding", "", PRESETS[1], config(SHORT))
            assert run_step(defs, instance, speed) == ""
            yield instance, store


def metadata(instance: dg.DagsterInstance, asset: str, partition: str | None) -> dict[str, Any]:
    events = instance.fetch_materializations(
        dg.AssetRecordsFilter(
            asset_key=dg.AssetKey(asset),
            asset_partitions=None if partition is None else [partition],
        ),
        limit=1,
    )
    found = events.records[0].asset_materialization
    assert found is not None
    return {name: value.value for name, value in found.metadata.items()}


def test_the_base_model_and_what_it_said_are_recorded(made: Made) -> None:
    instance, _ = made
    base = metadata(instance, "base_model", None)
    assert base["vocabulary_size"] == 28_800
    assert base["voices"] == "heart"
    calibration = metadata(instance, "calibration", None)
    assert (calibration["rows"], calibration["held_out_rows"]) == (2, 2)
    assert calibration["tokens"] > 0


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_has_passed_checks_of_its_own(made: Made, name: str) -> None:
    instance, store = made
    preset = load_preset(name)
    weights = preset.model_location(store.root).folder
    assert weights is not None
    served = served_as(preset, weights_sha256(weights), "cpu")
    checks = read_checks(preset.checks_path(store.root), served)
    assert sorted(checks) == sorted(REQUIRED)
    assert all(check.passed for check in checks.values())
    record = read_json(preset.checks_path(store.root).with_name(RECORD_FILE))
    assert record["weights_sha256"] == weights_sha256(weights)
    assert record["versions"].keys() >= {"torch", "transformers", "compressed-tensors"}
    fidelity = metadata(instance, "fidelity", name)
    assert fidelity["mean_kl_nats"] == pytest.approx(
        checks["fidelity"].value, rel=6e-3
    )  # Shown in three digits.
    assert 0 < fidelity["mean_kl_nats"] < preset.checkpoint.limit_nats  # pyright: ignore[reportOptionalMemberAccess]


def test_decode_speed_has_its_figures_and_tables(made: Made) -> None:
    instance, store = made
    speed = metadata(instance, "decode_speed", PRESETS[1])
    assert speed["ms_per_token_p50"] > 0
    assert speed["start_s"] > 0
    assert "| speed | scheme | device |" in speed["precision"]
    assert f"| {PRESETS[1]} (" in speed["precision"]
    (line,) = [line for line in checkpoint_lines(store, PRESETS) if PRESETS[1] + ":" in line]
    assert "tokens/s alone (realtime is 82" in line
    assert ("does NOT count" in line) == (speed["status"] == "invalid")


def test_a_preset_for_another_machine_is_skipped_and_the_demo_goes_on(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance, _ = made
    profiles = Path(os.environ["SPEECH_PROFILES"])
    name = "embedded-fp8-weight-only"
    other = profiles.with_name("other.toml")
    other.write_text(profiles.read_text().replace(f'"{PRESETS[2]}"', f'"{PRESETS[2]}", "{name}"'))
    monkeypatch.setenv("SPEECH_PROFILES", str(other))
    defs = build_definitions()
    for job in ("make_checkpoint", "time_decoding"):
        step = Step(job, "", name)
        message = run_step(defs, instance, step)
        assert message.startswith("skipped: ")
        assert "vLLM has no kernel for it on a CPU" in message
        assert passed_over(step, message) == message
    assert passed_over(step, "no space") == ""
    assert passed_over(step, CHECK_FAILED) == ""
    assert "no server takes it" in passed_over(Step("", "", judges=True), CHECK_FAILED)


def test_a_model_of_the_hub_is_shown_by_what_the_work_has_found(
    made: Made, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where the hub keeps it is the work process' matter: the asset looks for no folder."""
    _, store = made
    (tmp_path / "presets.toml").write_text(
        '[presets.hub]\nmodel = "somebody/voice@0123abc"\ncodec = "somebody/codec@0123abc"\n'
        'checkpoint = { scheme = "bf16" }\n'
    )
    profiles = Path(os.environ["SPEECH_PROFILES"]).read_text()
    names = ", ".join(f'"{name}"' for name in PRESETS)
    (tmp_path / "profiles.toml").write_text(profiles.replace(names, '"hub"'))
    monkeypatch.setenv("SPEECH_PRESETS", str(tmp_path / "presets.toml"))
    monkeypatch.setenv("SPEECH_PROFILES", str(tmp_path / "profiles.toml"))
    key = newest_key(store, "fidelity", PRESETS[0])
    check = {"passed": True, "detail": "as it should be", "value": 0.0002, "limit": 0.001}
    said = {
        "checkpoint": {**check, "weights_bytes": 7, "bytes_per_step": {"full": 6, "audio": 5}},
        "fidelity": {**check, "key": key},
    }

    def run(_self: object, _context: object, name: str, _arguments: object) -> list[Any]:
        return [{"kind": name, **said[name]}]

    monkeypatch.setattr(WorkResource, "run", run)
    with dg.DagsterInstance.ephemeral() as instance:
        assert run_step(build_definitions(), instance, Step("make_checkpoint", "", "hub")) == ""
        assert metadata(instance, "checkpoints", "hub")["bytes_per_step_audio_head"] == 5
        checks = [
            instance.get_latest_asset_check_evaluation_record(dg.AssetCheckKey(asset, name))
            for asset, name in (
                (dg.AssetKey("checkpoints"), "engine"),
                (dg.AssetKey("fidelity"), "fidelity"),
            )
        ]
        for record in checks:
            assert record is not None
            assert record.event is not None


def newest_key(store: Store, kind: str, name: str) -> str:
    (key, *_) = [key for key in store.keys(f"results/{kind}") if f"/{name}/" in key]
    return key


def test_fewer_bits_are_fewer_bytes_and_stray_further(made: Made) -> None:
    instance, _ = made
    whole, eight = (metadata(instance, "checkpoints", name) for name in PRESETS[:2])
    assert eight["bytes_per_step_audio_head"] < 0.8 * whole["bytes_per_step_audio_head"]
    strays = [metadata(instance, "fidelity", name)["mean_kl_nats"] for name in PRESETS]
    assert strays == sorted(strays)


def test_the_demo_says_a_line_of_each(made: Made) -> None:
    _, store = made
    heading, *lines = checkpoint_lines(store, PRESETS)
    assert heading == "Checkpoints:"
    assert [line.split(":")[0].strip() for line in lines] == list(PRESETS)
    assert all("strays" in line for line in lines)
    jobs = [step.job for step in checkpoint_steps(PRESETS)]
    assert jobs == ["calibrate", *["make_checkpoint", "time_decoding"] * 3]
    assert checkpoint_steps(()) == []


def test_a_checked_checkpoint_is_served_and_an_unchecked_one_is_not(
    made: Made, tmp_path: Path
) -> None:
    _, store = made
    with SpeechServer.running("embedded-fp8", environment={"SPEECH_STORE": store.root}) as server:
        answer = httpx.post(
            f"{server.url}/v1/audio/speech",
            json={"input": "So.", "response_format": "pcm", "seed": 1},
            timeout=300.0,
        )
        assert answer.status_code == 200
        assert len(answer.content) > 4_096
    checks = load_preset("embedded-fp8").checks_path(store.root)
    kept = checks.read_bytes()
    checks.unlink()
    try:
        with (
            pytest.raises(WorkError, match=r"exit code 3(.|\n)*fidelity was not made of these"),
            SpeechServer.running("embedded-fp8", environment={"SPEECH_STORE": store.root}),
        ):
            pass
        with SpeechServer.running(
            "embedded-fp8", arguments=["--allow-unchecked"],
            environment={"SPEECH_STORE": store.root},
        ) as server:  # fmt: skip
            assert server.preset == "embedded-fp8"
    finally:
        checks.write_bytes(kept)


def test_a_preset_that_strays_too_far_is_said_and_not_served(
    made: Made, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    instance, store = made
    codec = load_preset("embedded-fp8").codec_location().folder
    base = load_preset("embedded-fp8").base_location().folder
    (tmp_path / "presets.toml").write_text(
        '[presets.embedded-fp8-kv]\nmodel = "store:embedded-fp8"\n'
        f'codec = "{codec}"\ncpu_dtype = "auto"\nvllm = {{ kv_cache_dtype = "fp8" }}\n'
        f'checkpoint = {{ scheme = "fp8", base = "{base}", max_mean_kl_nats = 1e-6 }}\n'
    )
    monkeypatch.setenv("SPEECH_PRESETS", str(tmp_path / "presets.toml"))
    message = run_step(build_definitions(), instance, Step("make_checkpoint", "", PRESETS[2]))
    assert CHECK_FAILED in message
    [line] = checkpoint_lines(store, PRESETS[2:])[1:]
    assert "ABOVE its limit, not served: 1e-06" in line
    with (
        pytest.raises(WorkError, match=r"exit code 3(.|\n)*fidelity: mean KL"),
        SpeechServer.running("embedded-fp8-kv", environment={"SPEECH_STORE": store.root}),
    ):
        pass
