"""The speaker encoder's weights: a file of the package Resemblyzer, of which nothing is imported.

Its code would bring librosa, scipy, and webrtcvad from sources.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
from pathlib import Path
from typing import TYPE_CHECKING

from speech_assets.speaker.errors import SpeakerWeightsError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

PACKAGE = "Resemblyzer"
VERSION = "0.1.4"
WEIGHTS_SHA256 = "39373b86598fa3da9fcddee6142382efe09777e8d37dc9c0561f41f0070f134e"
NAME = f"GE2E speaker encoder ({PACKAGE} {VERSION})"
# Of the training: how cosines become its loss. An embedding has no use for them.
_OF_THE_LOSS = ("similarity_weight", "similarity_bias")


def weights_file() -> Path:
    """Where the package keeps them; torch is not asked for this.

    Raises:
        SpeakerWeightsError: the package is not installed.
    """
    found = importlib.util.find_spec("resemblyzer")
    if found is None or not found.submodule_search_locations:
        raise SpeakerWeightsError(
            f"telling speakers apart needs the weights in the package {PACKAGE}: pip install "
            f"--no-deps {PACKAGE}=={VERSION}, or leave it out by --no-speaker"
        )
    return Path(found.submodule_search_locations[0]) / "pretrained.pt"


def read_weights(path: Path) -> dict[str, Tensor]:
    """Parameters of the network by name, float32 on the CPU.

    Raises:
        SpeakerWeightsError: it is missing or not the release's.
    """
    again = f"pip install --force-reinstall --no-deps {PACKAGE}=={VERSION}"
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SpeakerWeightsError(
            f"{path} could not be read ({error.strerror}); install its package again: {again}"
        ) from error
    digest = hashlib.sha256(data).hexdigest()
    if digest != WEIGHTS_SHA256:
        raise SpeakerWeightsError(
            f"{path} has sha256 {digest[:12]}..., {PACKAGE} {VERSION} has {WEIGHTS_SHA256[:12]}...;"
            f" install the package again: {again}"
        )
    import torch

    # weights_only: arrays alone, no code of a pickle is run.
    kept = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    state: Mapping[str, Tensor] = kept["model_state"]
    return {name: value for name, value in state.items() if name not in _OF_THE_LOSS}
