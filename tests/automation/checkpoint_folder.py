"""A store with checkpoints by hand: weights of a few bytes, and checks as the assets write them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from server.checks import REQUIRED, Check, weights_sha256, write_check
from server.files import write_json
from server.presets import load_preset, served_as


def make_checkpoint(root: Path, preset: str, weights: bytes = b"weights") -> None:
    """What is served of the preset, without checks."""
    folder = root / "checkpoints" / preset
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.safetensors").write_bytes(weights)
    recipe = load_preset(preset).checkpoint
    if recipe is not None:
        write_json(folder / "checkpoint.json", {"recipe": asdict(recipe)})


def check(root: Path, preset: str, *, passed: bool = True) -> None:
    """The checks of what is there, `fidelity` as given."""
    row = load_preset(preset)
    folder = root / "checkpoints" / str(row.stored_as)
    for name in REQUIRED:
        is_good = passed or name != "fidelity"
        detail = "as it must be" if is_good else "mean KL 0.3 nats is above 0.05"
        limit = served_as(row, "", "cpu").limits.get(name)
        write_check(
            row.checks_path(str(root)),
            served_as(row, weights_sha256(folder), "cpu"),
            name,
            Check(passed=is_good, detail=detail, value=0.01 if is_good else 0.3, limit=limit),
        )
