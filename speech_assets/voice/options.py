"""Options of the training commands: one flag for each field of a settings dataclass."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from speech_assets.errors import ConfigError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

SettingsT = TypeVar("SettingsT", bound="DataclassInstance")


def add_settings(parser: argparse.ArgumentParser, kind: type[DataclassInstance]) -> None:
    """A flag for each field of `kind`, `--batch-tokens` for `batch_tokens`, with its default."""
    for field in dataclasses.fields(kind):
        flag = "--" + field.name.replace("_", "-")
        parser.add_argument(flag, type=type(field.default), default=field.default, help="setting")


def settings(kind: type[SettingsT], arguments: argparse.Namespace) -> SettingsT:
    """The settings that the command line chose."""
    values: dict[str, Any] = {f.name: getattr(arguments, f.name) for f in dataclasses.fields(kind)}
    return kind(**values)


def add_device(parser: argparse.ArgumentParser) -> None:
    """`--device`, a GPU where there is one."""
    default = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", choices=("cuda", "cpu"), default=default, help="to run on")


def chosen_device(arguments: argparse.Namespace) -> torch.device:
    """The device that the command line chose.

    Raises:
        ConfigError: it is a GPU, and there is none.
    """
    if arguments.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            "--device cuda: torch finds no GPU here; run on a machine with one and a CUDA build of "
            "torch, or take --device cpu, which is for trials of a few steps"
        )
    return torch.device(arguments.device)


def pack_folders(pairs: Sequence[str]) -> dict[Path, str]:
    """Voice by folder of packs, from `VOICE=DIR` each.

    Raises:
        ConfigError: one is not of that form, or has no packs.
    """
    folders: dict[Path, str] = {}
    for pair in pairs:
        voice, _, folder = pair.partition("=")
        if not voice or not folder:
            raise ConfigError(f"--packs {pair!r} is not of the form VOICE=DIR")
        if not (Path(folder) / "index.json").is_file():
            raise ConfigError(
                f"--packs {pair}: no index.json there; make packs with "
                "python -m speech_assets.work.voice_corpus"
            )
        folders[Path(folder)] = voice
    return folders
