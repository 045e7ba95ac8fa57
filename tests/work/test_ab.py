"""Comparisons with real servers: through Dagster, and cut short in every way."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
import wave
from typing import TYPE_CHECKING

import dagster as dg
import psutil
import pytest
from conftest import ROOT
from lineage_run import ending, processes_with, wait_for

from resources.configured import StoreResource, WorkResource
from resources.store import Store
from speech_assets.ab.errors import VoidError
from speech_assets.ab.raw import read_pair
from speech_assets.assets.ab import AbConfig, ab_arguments, ab_assets
from speech_assets.profiles import load_profile
from speech_assets.results.stored import newest, stored_ids

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

PRESET = "embedded-bf16"
OTHER = f"{PRESET},codec_dtype=bfloat16"
NAME = f"{PRESET} vs {OTHER}"


def test_a_comparison_through_dagster_keeps_raw_rows_of_both_arms_and_can_be_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    store = Store(str(tmp_path))
    config = AbConfig(settings_b="codec_dtype=bfloat16", sentences=2, seeds="1", warmup=1)
    with dg.DagsterInstance.ephemeral() as instance:
        done = dg.materialize(
            ab_assets(load_profile({})),
            partition_key=PRESET,
            resources={"store": StoreResource(root=store.root), "work": WorkResource()},
            run_config=dg.RunConfig(ops={"ab": config}),
            instance=instance,
        )
    assert done.success
    [event] = done.asset_materializations_for_node("ab")
    assert "2 have as many samples in both arms" in event.metadata["comparison"].value
    value = newest(store, "ab", NAME)
    assert value is not None
    assert (value["reduced"], value["config"]["order"]) == (True, "turns")
    assert value["config"]["warmup_clips"] == 2
    assert not value["config"]["same_configuration"]
    assert str(tmp_path) not in str(value)
    assert str(ROOT) not in str(value)
    assert [row["first"] for row in value["rows"]] == ["a", "b"]
    for row in value["rows"]:
        # The codec's dtype changes no token, and samples by little; voices less than sentences do.
        assert row["a"]["speaker_similarity"] < 0.99 < row["b"]["speaker_similarity"]
        assert row["same_samples"]
        assert row["same_frames"]
        assert not row["same_bytes"]
        assert -70 < row["relative_error_db"] < -20
        for side in (row["a"], row["b"]):
            assert side["samples"] <= 2_048 * side["frames"]
            assert side["lm_steps"] >= 7 * side["frames"]
            assert side["decode_calls"] > 0
            assert 0 < side["lm_ms"] + side["decode_ms"] < side["wall_ms"]
            assert 0 < side["first_audio_ms"] < side["wall_ms"]
            assert side["word_errors"] < side["words"]
            assert side["flags"] == []
            with wave.open(io.BytesIO(store.read_bytes(side["file"]))) as clip:
                assert clip.getnframes() == side["samples"]
    assert value["figures"]["memory_mib_a"]["value"] > 100
    a, _ = read_pair(store, value["config"])
    store.delete(a.rows[0].file)
    with pytest.raises(VoidError):
        read_pair(store, value["config"])


def test_the_partition_is_arm_b_and_arm_a_the_profiles_first_unless_told_otherwise() -> None:
    profile = load_profile({})

    def arms(**given: str) -> list[str]:
        return ab_arguments("embedded-w4a16", AbConfig(**given), profile, "s")[:3]

    assert arms() == ["--a=embedded-bf16", "--b=embedded-w4a16", "--codec-b="]
    assert arms(codec_b="bf16") == ["--a=embedded-w4a16", "--b=embedded-w4a16", "--codec-b=bf16"]
    changed = arms(settings_b="head=full")
    assert changed[:2] == ["--a=embedded-w4a16", "--b=embedded-w4a16,head=full"]
    assert arms(arm_a="embedded-fp8", settings_b="head=full")[0] == "--a=embedded-fp8"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--a", "bf61"], "no preset 'bf61'"),
        (["--b", "embedded-bf16,speed=2"], "'speed' is no setting"),
        (["--sentences", "31"], "--sentences is 31; there are 1 to 30"),
        (["--seeds", "1,1"], "seeds"),
        (["--codec-b", "int8"], "materialize codec_checkpoints for int8"),
        (["--out", "docs"], "--out docs has files; give an empty folder"),
    ],
)
def test_bad_input_is_refused_before_a_server_starts(
    tmp_path: Path, arguments: list[str], says: str
) -> None:
    with start(tmp_path, *arguments) as process:
        assert process.wait() == 2
        assert says in output(process)
    assert not (tmp_path / "ab").exists()


@pytest.mark.parametrize(
    ("asr", "says"),
    [
        ("nope", "asr 'nope' is no Whisper; give a .pt file's path or one of tiny.en-package"),
        ("nowhere.pt", "there is no such file"),
        ("damaged.pt", "is not a whole Whisper checkpoint"),
    ],
)
def test_a_whisper_that_is_not_there_is_refused_before_a_server_starts(
    tmp_path: Path, asr: str, says: str
) -> None:
    (tmp_path / "damaged.pt").write_bytes(b"PK")
    given = str(tmp_path / asr) if asr.endswith(".pt") else asr
    with start(tmp_path, "--asr", given, transcripts=True) as process:
        assert process.wait() in (1, 2)
        said = output(process)
    assert says in said
    assert "is started" not in said
    assert not (tmp_path / "ab").exists()


@pytest.mark.parametrize("how", ["killed", "interrupted", "without a server"])
def test_a_comparison_that_is_cut_short_leaves_no_process_and_no_result(
    tmp_path: Path, how: str
) -> None:
    with start(tmp_path) as process:
        wait_for(lambda: servers(tmp_path), "a server is started")
        if how == "killed":
            process.kill()
        elif how == "interrupted":
            process.send_signal(signal.SIGINT)
        else:
            # The second of the two that are up is arm B's.
            wait_for(lambda: any(tmp_path.rglob("a/*.wav")), "a first clip is kept")
            max(servers(tmp_path), key=lambda server: server.create_time()).kill()
        code, said = process.wait(), output(process)
    wait_for(lambda: not processes_with("SPEECH_STORE", str(tmp_path)), "everything has ended")
    assert stored_ids(Store(str(tmp_path))) == []
    if how == "interrupted":
        assert code == 130
        assert "there is no result, and the next comparison begins anew" in said
    if how == "without a server":
        assert code == 1
        assert f"error: arm B ({OTHER}): the server of preset 'embedded-bf16' was killed" in said


def start(
    store: Path, *arguments: str, transcripts: bool = False
) -> AbstractContextManager[subprocess.Popen[str]]:
    """The work process by hand."""
    return ending(
        subprocess.Popen(
            [
                *(sys.executable, "-m", "speech_assets.work.ab", "--b", OTHER, "--warmup", "0"),
                *([] if transcripts else ["--no-transcripts"]),
                *arguments,
            ],
            cwd=ROOT,
            env={**os.environ, "SPEECH_STORE": str(store)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
    )


def output(process: subprocess.Popen[str]) -> str:
    """What it wrote; it has ended."""
    assert process.stderr is not None
    with process.stderr as stream:
        return stream.read()


def servers(store: Path) -> list[psutil.Process]:
    """Servers of that store."""
    found: list[psutil.Process] = []
    for process in processes_with("SPEECH_STORE", str(store)):
        with contextlib.suppress(psutil.Error):
            if process.cmdline()[2:4] == ["-m", "server"]:
                found.append(process)
    return found
