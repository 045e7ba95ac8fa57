"""speech_assets -> resources -> server: no import goes the other way; heavy ones stay in place."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import resources
import server
import speech_assets

ROOT = Path(__file__).parent.parent
HEAVY = {"torch", "vllm", "snac", "whisper"}
# Where torch may be imported at the top of a module.
HEAVY_HOMES = (
    "speech_assets/work/",
    "speech_assets/voice/",
    "speech_assets/quantize/",
    "speech_assets/asr/",
    "speech_assets/speaker/",
    "server/codec",
    "server/engine",
)
TIMES_DAGSTER = (
    "speech_assets/work/bench_backfill.py",
    "speech_assets/work/tokenize_backfill.py",
)
PURE = ("speech_assets/corpus/", "speech_assets/profiles.py", "speech_assets/work/", "server/")
FILES = sorted(
    p for name in ("speech_assets", "resources", "server") for p in ROOT.glob(f"{name}/**/*.py")
)


def imports(path: Path) -> set[str]:
    """Top-level packages that a file imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.split(".")[0])
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_dependence_has_one_direction(path: Path) -> None:
    name = str(path.relative_to(ROOT))
    found = imports(path)
    if name.startswith("server/"):
        assert not found & {"resources", "speech_assets", "dagster"}
    if name.startswith("resources/"):
        assert "speech_assets" not in found
    if not name.startswith(HEAVY_HOMES):
        assert not found & HEAVY
    allowed = name in TIMES_DAGSTER
    if name.startswith(PURE) and not allowed:
        assert "dagster" not in found


def test_definitions_load_no_torch() -> None:
    code = (
        "import sys, speech_assets.definitions\n"
        f"print([name for name in {sorted(HEAVY)} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_text_is_read_and_cut_without_the_edge() -> None:
    code = (
        "import sys, server.passage, server.text_parts, server.sentences\n"
        "print([name for name in ('pydantic', 'server.protocol') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("package", [speech_assets, resources, server])
def test_the_packages_are_ours(package: object) -> None:
    assert Path(str(package.__file__)).is_relative_to(ROOT)  # pyright: ignore[reportAttributeAccessIssue]
