"""Checkpoints of the embedded voice by the real llm-compressor, in a real vLLM; and killed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch
from lineage_run import ending
from safetensors.torch import load_file, save_file
from small_voice import write_layout, write_small_voice

from resources.store import Store
from server.checkpoint import open_checkpoint
from server.checks import Check, read_checks, weights_sha256
from server.engine import EngineSettings
from server.errors import ConfigurationError, WeightsError
from server.presets import load_preset, served_as
from server.text import TextEncoder
from speech_assets.errors import ConfigError
from speech_assets.quantize import checkpoint as quantize_checkpoint
from speech_assets.quantize.calibration import (
    CALIBRATION_KEY,
    HELD_OUT_KEY,
    RECORD_KEY,
    CalibrationRecord,
    SpokenText,
    pack_generations,
)
from speech_assets.quantize.checkpoint import (
    QuantizeError,
    Source,
    check_made,
    made_already,
    make_checkpoint,
)
from speech_assets.quantize.engine_check import CHECK, Continuation, compare, generate
from speech_assets.quantize.environment import QuantizeEnvironment, ensure_environment
from speech_assets.quantize.reference import reference_model, teacher_forced_logits
from speech_assets.work.checkpoint import plan_checkpoint

pytestmark = pytest.mark.filterwarnings("ignore")  # vLLM's and torch's, of their own use.

ROOT = Path(__file__).parents[2]
VOICE = ROOT / "server" / "embedded" / "voice"
CODEC = ROOT / "server" / "embedded" / "codec"
TEXTS = ("The tide came in.", "Nobody knew why.", "Put it down.", "A bird sang.", "We met once.")
MAKE_LIMIT_S = 240.0  # What a loaded machine may take for one checkpoint and its check.


@dataclass(frozen=True)
class Made:
    """A store with generations of the embedded voice, and a preset file of the tests' own."""

    store: Path
    presets: Path
    base_sha256: str
    generations: list[Continuation]  # Of the base itself in vLLM.

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "SPEECH_PRESETS": str(self.presets),
            "OMP_NUM_THREADS": "1",
            # For locks of devices apart: no other work holds the one of this machine.
            "TMPDIR": str(self.presets.parent),
        }

    def start(
        self, preset: str, *options: str
    ) -> contextlib.AbstractContextManager[subprocess.Popen[str]]:
        words = ["-m", "speech_assets.work.checkpoint", "--preset", preset, *options]
        return ending(
            subprocess.Popen(
                [sys.executable, *words, "--store", str(self.store)],
                cwd=ROOT,
                env=self.environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )

    def run(self, preset: str, *options: str) -> tuple[int, str]:
        with self.start(preset, *options) as process:
            _, said = process.communicate(timeout=MAKE_LIMIT_S)
        return process.returncode, said

    def folder(self, preset: str) -> Path:
        return self.store / "checkpoints" / preset

    def checks(self, preset: str, weights: Path) -> dict[str, Check]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SPEECH_PRESETS", str(self.presets))
            served = served_as(load_preset(preset), weights_sha256(weights), "cpu")
        return read_checks(self.folder(preset) / "checks.json", served)


def write_presets(path: Path, base: Path = VOICE, **recipes: str) -> None:
    """A file of one preset a recipe, whose store has its checkpoint."""
    rows = [
        f'[presets.{name}]\nmodel = "store"\ncodec = "{CODEC}"\ncpu_dtype = "bfloat16"\n'
        f"max_streams = 8\nmax_model_len = 1024\n"
        f'checkpoint = {{ base = "{base}", {recipe} }}\n'
        for name, recipe in recipes.items()
    ]
    path.write_text("\n".join(rows))


def write_calibration(store: Path, rows: list[SpokenText], base_sha256: str) -> None:
    place = Store(str(store))
    sha256: dict[str, str] = {}
    for key in (CALIBRATION_KEY, HELD_OUT_KEY):
        data = pack_generations(rows)
        place.write_bytes(key, data)
        sha256[key] = hashlib.sha256(data).hexdigest()
    tokens = sum(len(row.token_ids) for row in rows)
    record = CalibrationRecord(
        base=str(VOICE),
        base_weights_sha256=base_sha256,
        texts_sha256="",
        sampling={},
        engine={},
        rows=len(rows),
        held_out_rows=len(rows),
        tokens=tokens,
        held_out_tokens=tokens,
        sha256=sha256,
    )
    place.write_json(RECORD_KEY, {n: getattr(record, n) for n in record.__dataclass_fields__})


@pytest.fixture(scope="session")
def environment() -> QuantizeEnvironment:
    return ensure_environment(print)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("quantized")
    base = open_checkpoint(VOICE)
    encoder = TextEncoder(base.folder, base.layout)
    prompts = [encoder.encode(text, encoder.voices[0]) for text in TEXTS]
    set_threads = torch.set_num_threads
    settings = EngineSettings(dtype="bfloat16", max_streams=5, max_model_len=512)
    generations = generate(base, settings, prompts)
    torch.set_num_threads = set_threads  # vLLM makes it do nothing.
    rows = [
        SpokenText(
            f"{n}", text, "heart", 0, {}, tuple(one.prompt_ids), tuple(one.token_ids), "length"
        )
        for n, (text, one) in enumerate(zip(TEXTS, generations, strict=True))
    ]
    base_sha256 = weights_sha256(VOICE)
    write_calibration(folder / "store", rows, base_sha256)
    write_presets(
        folder / "presets.toml",
        four='scheme = "w4a16"',
        eight='scheme = "fp8"',
        killed='scheme = "fp8"',
    )
    with (folder / "presets.toml").open("a") as file:
        head = f'codec = "{CODEC}"\nmax_streams = 8\nmax_model_len = 1024\n'
        file.write(f'[presets.wide]\nmodel = "store:four"\ncpu_dtype = "bfloat16"\n{head}')
        file.write('head = "full"\n')
    return Made(folder / "store", folder / "presets.toml", base_sha256, generations)


@pytest.fixture(scope="module")
def four(made: Made, environment: QuantizeEnvironment) -> Path:
    """Weights of 4 bits by GPTQ, by the command."""
    code, said = made.run("four")
    assert code == 0, said
    return made.folder("four")


def source_of(made: Made, monkeypatch: pytest.MonkeyPatch, preset: str = "eight") -> Source:
    monkeypatch.setenv("SPEECH_PRESETS", str(made.presets))
    plan = plan_checkpoint(preset)
    return Source(preset, plan.recipe, plan.location, plan.base, plan.base_sha256, None, "lock")


def test_a_checkpoint_is_whole_recorded_and_passes_its_check_in_vllm(
    made: Made, four: Path
) -> None:
    names = {path.name for path in four.iterdir()}
    expected = {"config.json", "layout.json", "model.safetensors", "checkpoint.json", "checks.json"}
    assert names == expected
    record = json.loads((four / "checkpoint.json").read_text())
    parent = {"location": str(VOICE), "commit": None, "weights_sha256": made.base_sha256}
    assert record["parent"] == parent
    assert record["recipe"] == {"scheme": "w4a16", "base": str(VOICE), "group_size": 128}
    assert record["weights_sha256"] == weights_sha256(four)
    assert record["weights_bytes"] == (four / "model.safetensors").stat().st_size
    assert record["versions"]["compressed-tensors"] == "0.19.0"
    # 28,800 or 28,673 rows of 384 numbers of 2 bytes.
    steps = record["bytes_per_step"]
    assert steps["full"] - steps["audio"] == 127 * 384 * 2
    check = made.checks("four", four)[CHECK]
    assert check.passed
    assert check.value <= check.limit
    assert open_checkpoint(four).tied_head


def test_a_second_run_makes_nothing_anew(made: Made, four: Path) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in four.iterdir()}
    code, said = made.run("four")
    assert code == 0, said
    assert "the checkpoint is there" in said
    assert {path.name: path.stat().st_mtime_ns for path in four.iterdir()} == before


def test_a_damaged_file_of_checks_is_made_anew_by_the_command(made: Made, four: Path) -> None:
    (four / "checks.json").write_text("{")
    code, said = made.run("four")
    assert code == 0, said
    assert "the checkpoint is there" in said
    assert made.checks("four", four)[CHECK].passed


def test_what_serves_anothers_weights_has_a_record_and_checks_of_its_own(
    made: Made, four: Path
) -> None:
    code, said = made.run("wide")
    assert code == 0, said
    names = sorted(path.name for path in made.folder("wide").iterdir())
    assert names == ["checkpoint.json", "checks.json"]
    assert made.checks("wide", four)[CHECK].passed
    record, of_four = (
        json.loads((folder / "checkpoint.json").read_text())
        for folder in (made.folder("wide"), four)
    )
    assert record == {**of_four, "preset": "wide"}
    # Its own head is another setting: the check of the one does not let the other be served.
    assert made.checks("four", four)[CHECK].passed
    shutil.copy(four / "checks.json", made.folder("wide") / "checks.json")
    assert made.checks("wide", four) == {}


def test_the_check_passes_for_the_weights_that_ran_and_fails_for_others(
    made: Made, four: Path
) -> None:
    base = open_checkpoint(VOICE)

    def check(folder: Path) -> Any:
        model = reference_model(folder, dtype=torch.bfloat16)
        return compare(
            made.generations,
            lambda prompt, ids: teacher_forced_logits(model, prompt, ids, base.layout),
            base.layout,
        )

    same, other = check(base.folder), check(four)
    assert same.passed, same.detail
    assert not other.passed, other.detail
    silent = [Continuation((1,), (5,), ({5: 0.0},))] * 3
    nothing = compare(silent, lambda *_: torch.zeros(1, 4_097), base.layout)
    assert not nothing.passed
    assert "does not speak" in nothing.detail


def test_fp8_needs_no_data_and_what_is_made_is_looked_at(
    made: Made, environment: QuantizeEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = source_of(made, monkeypatch)
    target = tmp_path / "eight"
    target.mkdir()
    (target / "config.json").write_text("old")
    record = make_checkpoint(source, target, [], environment, device="cpu", say=print)
    path, sha256 = target / "checkpoint.json", weights_sha256(target)
    assert record["weights_sha256"] == sha256
    assert made_already(source, path, target, sha256) == record
    assert [path.name for path in tmp_path.iterdir() if path.name != ".eight.lock"] == ["eight"]
    weights = load_file(target / "model.safetensors")
    name = "model.layers.3.mlp.up_proj.weight"
    assert weights[name].dtype == torch.float8_e4m3fn
    original = load_file(source.base.folder / "model.safetensors")[name].float()
    error = weights[name].float() * weights[f"{name}_scale"].float() - original
    # e4m3 has 3 bits after the leading one: half a step is a sixteenth of the value at most.
    assert float((error.abs() - original.abs() / 16).max()) < 1e-3

    # Where the base lies, and by what name, changes no weight, nor do groups where there are none.
    moved = replace(source, location="elsewhere", preset="renamed", commit="c")
    recipe = replace(source.recipe, base="elsewhere", max_mean_kl_nats=1.0, group_size=64)
    assert made_already(replace(moved, recipe=recipe), path, target, sha256) == record
    in_groups = replace(source.recipe, scheme="w4a16")
    for other in (
        replace(source, base_sha256="other"),
        replace(source, lock_sha256="x"),
        replace(source, calibration_sha256="x"),
        replace(source, recipe=replace(source.recipe, scheme="fp8_weight_only")),
        replace(source, recipe=in_groups),
    ):
        assert made_already(other, path, target, sha256) is None
    assert made_already(source, path, target, "0" * 64) is None
    text = path.read_text()
    for damage in ("{", "[]", '{"recipe": 3}', text.replace('"parent"', '"parents"')):
        path.write_text(damage)
        assert made_already(source, path, target, sha256) is None
    path.write_text(text)
    damaged = {**weights, f"{name}_scale": weights[f"{name}_scale"] * float("nan")}
    save_file(damaged, target / "model.safetensors")
    assert made_already(source, path, target, weights_sha256(target)) is None
    with pytest.raises(QuantizeError, match=r"up_proj.weight_scale is not finite"):
        check_made(source, target)
    del damaged[f"{name}_scale"]
    save_file(damaged, target / "model.safetensors")
    with pytest.raises(QuantizeError, match=r"up_proj.weight_scale is missing"):
        check_made(source, target)
    four_bits = replace(source, recipe=replace(source.recipe, scheme="w4a16"))
    with pytest.raises(QuantizeError, match=r"is not w4a16: quantization_config.format is"):
        check_made(four_bits, target)


def quantizer_of(process: subprocess.Popen[str]) -> psutil.Process:
    """The quantizer that a work process has started, once its job is there."""
    assert process.stderr is not None
    for line in process.stderr:
        if "killed: fp8 of" in line:
            break
    tick = threading.Event()
    while process.poll() is None:
        for child in psutil.Process(process.pid).children():
            with contextlib.suppress(psutil.Error):  # It may be another one, at its end.
                if any("llm_compressor.py" in word for word in child.cmdline()):
                    return child
        tick.wait(0.02)
    raise AssertionError("it started no quantizer")


def test_a_quantizer_that_is_killed_leaves_no_checkpoint_and_the_next_run_makes_it(
    made: Made, environment: QuantizeEnvironment
) -> None:
    with made.start("killed") as process:
        quantizer_of(process).send_signal(signal.SIGKILL)
        _, said = process.communicate(timeout=MAKE_LIMIT_S)
    assert process.returncode == 2
    assert "error: the quantizer was ended by signal 9" in said
    assert "with more memory free" in said
    assert not made.folder("killed").exists()
    assert not (made.store / "checkpoints" / ".killed.part").exists()

    with made.start("killed") as process:
        quantizer = quantizer_of(process)
        quantizer.suspend()  # It sees nothing itself, not even its standard input's end.
        process.send_signal(signal.SIGKILL)  # It can clean up nothing.
        process.communicate(timeout=MAKE_LIMIT_S)
    psutil.wait_procs([quantizer], timeout=60)
    assert not quantizer.is_running()
    assert not made.folder("killed").exists()
    assert (made.store / "checkpoints" / ".killed.part").is_dir()

    code, said = made.run("killed")
    assert code == 0, said
    assert open_checkpoint(made.folder("killed")).quantization == "compressed-tensors"
    assert not (made.store / "checkpoints" / ".killed.part").exists()


def test_a_quantizer_that_fails_on_a_full_disk_says_so(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = source_of(made, monkeypatch)
    usage = shutil.disk_usage(tmp_path)
    fails = QuantizeEnvironment(Path(shutil.which("false") or ""), "cpu", "", 0)
    # Full once it runs: a disk that is full before is refused before.
    after = iter([usage, usage._replace(free=10 << 20)])
    monkeypatch.setattr(shutil, "disk_usage", lambda _: next(after))
    with pytest.raises(QuantizeError, match=r"is full, 10 MiB are free; .*; free space and run"):
        make_checkpoint(source, tmp_path / "eight", [], fails, device="cpu", say=print)


def test_an_exchange_that_was_cut_off_is_undone(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / ".eight.old"
    old.mkdir()
    (old / "config.json").write_text("whole")
    source = source_of(made, monkeypatch)
    nothing = QuantizeEnvironment(Path(shutil.which("false") or ""), "cpu", "", 0)
    with pytest.raises(QuantizeError, match="ended with code 1: it said nothing"):
        make_checkpoint(source, tmp_path / "eight", [], nothing, device="cpu", say=print)
    assert (tmp_path / "eight" / "config.json").read_text() == "whole"


def test_what_a_quantizer_said_before_it_failed_is_kept_and_named(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, log = source_of(made, monkeypatch), tmp_path / ".eight.log"
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\necho first >&2\necho last words >&2\nexit 7\n")
    script.chmod(0o755)
    failing = QuantizeEnvironment(script, "cpu", "", 0)
    with pytest.raises(QuantizeError, match=r"code 7: last words; .*/\.eight\.log; run again$"):
        make_checkpoint(source, tmp_path / "eight", [], failing, device="cpu", say=print)
    assert log.read_text() == "first\nlast words\n"
    assert sorted(p.name for p in tmp_path.iterdir()) == [".eight.lock", ".eight.log", "python"]


def test_no_space_is_one_line_before_anything_runs(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = source_of(made, monkeypatch)
    monkeypatch.setattr(
        quantize_checkpoint.shutil, "disk_usage", lambda _: SimpleNamespace(free=10_000_000)
    )
    nothing = QuantizeEnvironment(Path("/nowhere"), "cpu", "", 0)
    with pytest.raises(QuantizeError, match=r"0\.01 GB are free and up to 0\.31 GB are needed"):
        make_checkpoint(source, tmp_path / "eight", [], nothing, device="cpu", say=print)
    assert not (tmp_path / "eight").exists()


def test_a_base_or_recipe_that_cannot_work_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    presets = tmp_path / "presets.toml"
    monkeypatch.setenv("SPEECH_PRESETS", str(presets))
    base = write_small_voice(tmp_path / "voice")
    write_presets(presets, base, small='scheme = "w4a16"', odd='scheme = "w4a16", group_size = 24')
    with pytest.raises(ConfigurationError, match="no preset 'none'; there are"):
        plan_checkpoint("none")
    with pytest.raises(ConfigurationError, match="embedded-upstream has no checkpoint table"):
        plan_checkpoint("embedded-upstream")
    # 64 hidden, 160 inner: what divides both is 32.
    with pytest.raises(ConfigError, match=r"group_size 24 does not divide the 64 .*\(32\)"):
        plan_checkpoint("odd")
    with pytest.raises(ConfigError, match="group_size 128 does not divide the 64 inputs of q_proj"):
        plan_checkpoint("small")

    write_layout(base, audio_base=200)  # Of a larger vocabulary.
    with pytest.raises(WeightsError, match="is smaller than the"):
        plan_checkpoint("small")
    write_layout(base)
    weights = (base / "model.safetensors").read_bytes()
    (base / "model.safetensors").write_bytes(weights[:-1_000])
    with pytest.raises(WeightsError, match="cut short or damaged"):
        plan_checkpoint("small")


def test_a_base_of_the_hub_is_known_by_its_commit_and_a_branch_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    found = write_small_voice(tmp_path / "snapshots" / commit)  # As the hub's cache has it.
    monkeypatch.setattr("speech_assets.work.checkpoint.local_folder", lambda *_: found)
    presets = tmp_path / "presets.toml"
    monkeypatch.setenv("SPEECH_PRESETS", str(presets))
    recipe = 'scheme = "w4a16", group_size = 32'
    for revision, warned in (("main", True), (commit, False)):
        text = f'[presets.hub]\nmodel = "store"\ncodec = "{CODEC}"\n'
        presets.write_text(f'{text}checkpoint = {{ {recipe}, base = "owner/voice@{revision}" }}\n')
        plan = plan_checkpoint("hub")
        assert (plan.commit, plan.location) == (commit, f"owner/voice@{revision}")
        assert (plan.warning is not None and f"write @{commit}" in plan.warning) == warned
        source = Source("hub", plan.recipe, plan.location, plan.base, "", None, None, plan.commit)
        assert source.as_json()["parent"]["commit"] == commit


def test_what_the_store_lacks_is_one_line_of_the_command(made: Made, tmp_path: Path) -> None:
    elsewhere = replace(made, store=tmp_path / "store")
    code, said = elsewhere.run("four")
    assert (code, said.count("error:")) == (2, 1)
    assert "calibration/record.json is missing; materialize calibration first" in said
    shutil.copytree(made.store / "calibration", tmp_path / "store" / "calibration")
    record = tmp_path / "store" / "calibration" / "record.json"
    record.write_text(record.read_text().replace(made.base_sha256, "0" * 64))
    code, said = elsewhere.run("four")
    assert code == 2
    assert "the generations are of another base model" in said
    assert not (tmp_path / "store" / "checkpoints" / "four").exists()
    process = subprocess.run(
        [
            *(sys.executable, "-m", "speech_assets.work.checkpoint"),
            *("--preset", "eight", "--store", "s3://bucket/x"),
        ],
        cwd=ROOT,
        env=made.environment,
        capture_output=True,
        text=True,
    )
    assert process.returncode == 2
    assert "is not a folder" in process.stderr
    assert "Traceback" not in process.stderr + said
