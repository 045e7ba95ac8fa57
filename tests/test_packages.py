"""Every package that the project names is used by code that ships, which a command reaches."""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("speech_assets", "server", "resources")
# Where commands begin: the lineage, the server, the work processes, the console scripts.
ENTRIES = ("speech_assets.definitions", "speech_assets.demo", "server.__main__", "server.say")
# What the project was asked to be made of: distribution, module, and what of it must be called.
USED = {
    "dagster": ("dagster", "asset"),
    "vllm": ("vllm", "v1.engine.llm_engine.LLMEngine"),
    "torch": ("torch", "inference_mode"),
    "snac": ("snac", "SNAC"),
    "pyarrow": ("pyarrow", "schema"),
    "webrtcvad-wheels": ("webrtcvad", "Vad"),
    "zstandard": ("zstandard", "ZstdCompressor"),
    "jiwer": ("jiwer", "process_words"),
    "openai-whisper": ("whisper", "transcribe.transcribe"),
    "pandas": ("pandas", "DataFrame"),
}


def _module(path: Path) -> str:
    words = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(words[:-1] if words[-1] == "__init__" else words)


FILES = {_module(path): path for name in PACKAGES for path in ROOT.glob(f"{name}/**/*.py")}


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse(FILES[module].read_text(encoding="utf-8"))


def _imports(module: str) -> set[str]:
    """Dotted names that a module imports anywhere, also inside its functions."""
    found: set[str] = set()
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


@cache
def _reached() -> frozenset[str]:
    """Modules of the project that a command comes to by imports."""
    todo = [name for name in FILES if name in ENTRIES or name.startswith("speech_assets.work.")]
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    todo += [target.partition(":")[0] for target in scripts.values()]
    reached: set[str] = set()
    while todo:
        module = todo.pop()
        if module not in reached:
            reached.add(module)
            todo += [name for name in _imports(module) if name in FILES]
    return frozenset(reached)


def _uses(module: str, package: str) -> set[str]:
    """Dotted names of the package that a module uses: by import, or of what it imported."""
    found = {name for name in _imports(module) if name.startswith(f"{package}.")}
    bound: dict[str, str] = {}
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.Import):
            bound |= {alias.asname or alias.name.split(".")[0]: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            bound |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            of = bound.get(node.value.id, "")
            if of.split(".")[0] == package:
                found.add(f"{of}.{node.attr}")
    return {name.removeprefix(f"{package}.") for name in found}


@pytest.mark.parametrize("distribution", USED)
def test_a_package_of_the_list_does_its_work_in_code_that_a_command_reaches(
    distribution: str,
) -> None:
    package, name = USED[distribution]
    users = [
        module
        for module in _reached()
        if any(found.split(".")[0] == package for found in _imports(module))
    ]
    assert users, f"no shipped module imports {package}"
    assert any(name in _uses(module, package) for module in users), f"nothing uses {name}"


def test_a_name_that_something_else_has_is_no_use_of_a_package() -> None:
    module = "speech_assets.corpus.shards"
    assert "schema" in _uses(module, "pyarrow")
    attributes = {n.attr for n in ast.walk(_tree(module)) if isinstance(n, ast.Attribute)}
    assert attributes - _uses(module, "pyarrow")
    assert _uses(module, "pandas") == set()


def test_the_web_server_is_what_the_ui_starts() -> None:
    recipe = (ROOT / "Makefile").read_text()
    assert re.search(r"^ui:.*\n(?:\t.*\n)*\t.*dagster dev -w workspace\.yaml", recipe, re.M)


def test_every_package_of_the_list_is_a_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["gpu"]]
    names = {re.split(r"[=<>\[; ]", line)[0] for line in wanted}
    assert names >= {*USED, "dagster-webserver"}
