"""Which Whisper a location names, loaded: a package's, one of openai-whisper's names, or a file."""

from __future__ import annotations

import hashlib
import os
import pickle
import socket
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import whisper
from filelock import FileLock

from server.files import user_path
from speech_assets.asr import packaged
from speech_assets.asr.errors import AsrDownloadError, AsrWeightsError
from speech_assets.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Generator

    from whisper.model import Whisper

PACKAGED = "tiny.en-package"
SILENT_LINE_S = 60.0  # A download from which nothing comes for so long has failed.


def load_weights(location: str, device: str) -> tuple[str, Whisper]:
    """A name for results, without a path, and the model on `device`; see `load_transcriber`.

    Raises:
        ConfigError: no such model, file or device.
        AsrWeightsError: weights are damaged or not of their form.
        AsrDownloadError: they could not be downloaded.
    """
    if torch.device(device).type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"device {device!r}: torch finds no CUDA device; give 'cpu'")
    if location == PACKAGED:
        return packaged.NAME, packaged.packaged_whisper().to(device)
    if location in whisper.available_models():
        return f"whisper {location}", _download(location, device)
    path = user_path(location)
    if path.suffix != ".pt":
        names = ", ".join([PACKAGED, *whisper.available_models()])
        raise ConfigError(
            f"asr {location!r} is no Whisper; give a .pt file's path or one of {names}"
        )
    if not path.is_file():
        raise ConfigError(f"asr {location!r}: there is no such file; give one of openai-whisper's")
    return _read_file(path, device)


def _read_file(path: Path, device: str) -> tuple[str, Whisper]:
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        model = whisper.load_model(str(path), device=device)
    # What torch and pickle raise for bytes that are none of theirs, and whisper for other weights.
    except (
        OSError,
        RuntimeError,
        ValueError,
        KeyError,
        TypeError,
        EOFError,
        pickle.UnpicklingError,
    ) as error:
        first = next(iter(str(error).splitlines()), type(error).__name__)
        raise AsrWeightsError(
            f"{path} is not a whole Whisper checkpoint ({first}); it must be a .pt file of "
            "openai-whisper's form: dims and model_state_dict"
        ) from error
    return f"whisper {path.stem} (sha256 {digest[:12]})", model


def _download(name: str, device: str) -> Whisper:
    """openai-whisper's own weights, kept in its cache folder and verified by it at every load."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(cache) / "whisper"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Two processes that download to one file would spoil it for each other.
        with FileLock(folder / f"{name}.lock"), _impatient_sockets():
            return whisper.load_model(name, device=device, download_root=str(folder))
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        first = next(iter(str(error).splitlines()), type(error).__name__)
        raise AsrDownloadError(
            f"asr {name!r} is not in {folder} and could not be downloaded ({first}); give this "
            "machine a network once, or the path of its .pt file"
        ) from error


@contextmanager
def _impatient_sockets() -> Generator[None]:
    """Sockets without a time limit, such as whisper's download, get one."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(SILENT_LINE_S)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)
