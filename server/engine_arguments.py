"""The arguments that vLLM's engine takes, known without its import, which takes seconds."""

from __future__ import annotations

import ast
import difflib
import functools
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

from server.errors import shown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from server.engine import Form

_SOURCE = Path("engine") / "arg_utils.py"
_CLASSES = {"in_process": ("EngineArgs",), "child": ("EngineArgs", "AsyncEngineArgs")}


def argument_fault(given: Iterable[str], form: Form) -> str | None:
    """Why vLLM does not take the arguments of these names, from a preset's key on; None: it does.

    Of a vLLM that is not there, or is written otherwise than known, nothing is said.
    """
    names = argument_names(form)
    for name in given if names else ():
        if name not in names:
            near = difflib.get_close_matches(name, names, 1)
            meant = f"write {near[0]}, or " if near else ""
            return (
                f"vllm.{shown(name)[1:-1]} is no argument of the installed vLLM's "
                f"{_CLASSES[form][-1]}; {meant}leave it out"
            )
    return None


@functools.cache
def argument_names(form: Form) -> frozenset[str]:
    """Names of the fields of vLLM's `EngineArgs`, as its source lists them; none where it has none.

    "child" opens the engine by `AsyncEngineArgs`, which has more.
    """
    spec = importlib.util.find_spec("vllm")  # Of a package's top: nothing of it is run.
    if spec is None or spec.origin is None:
        return frozenset()
    try:
        tree = ast.parse((Path(spec.origin).parent / _SOURCE).read_bytes())
    except (OSError, SyntaxError):
        return frozenset()
    found = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    if "EngineArgs" not in found:
        return frozenset()
    return frozenset(
        line.target.id
        for name in _CLASSES[form]
        if name in found
        for line in found[name].body
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
    )
