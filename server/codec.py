"""The SNAC codec: loading, identity, and the reference encode and decode of one clip."""

from __future__ import annotations

import hashlib
import math
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from snac import SNAC
from snac.layers import NoiseBlock

from server import frames
from server.codec_decode_only import fold_weight_norm, load_decode_only
from server.codec_form import read_form
from server.errors import WeightsError
from server.files import read_json, sha256_of
from server.weights import CODEC_WEIGHTS, codec_weights_file

if TYPE_CHECKING:
    from collections.abc import Generator

    from numpy.typing import NDArray

UNTRAINED_SEED = 1234
_SWITCH = threading.Lock()


@dataclass(frozen=True, slots=True)
class CodecIdentity:
    """What a codec is, as recorded in every artefact made with it."""

    # "snac-19.8M-5f3a9c21d0e4", "untrained-..." when the weights are random, "snac-int8-..." of a
    # decode-only codec, which counts its own parameters.
    name: str
    weights_sha256: str  # of the weights file; of the words "seed N" if untrained
    config_sha256: str
    trained: bool
    parameter_count: int


@dataclass(frozen=True, slots=True)
class Codec:
    """A SNAC model in float32 on one device, in evaluation mode, weight norm folded in."""

    model: SNAC
    identity: CodecIdentity
    device: torch.device

    @torch.inference_mode()
    def encode(self, samples: NDArray[np.float32]) -> NDArray[np.uint16]:
        """Reference codes of one clip, uint16 of shape (frames, 7): eager, batch 1, float32.

        `samples` is float32 of shape (samples,) at 24 kHz. SNAC pads it to whole frames.

        Raises:
            WeightsError: the codec is a decode-only one.
        """
        audio = torch.from_numpy(samples).to(self.device)[None, None]
        levels = self.model.encode(audio)
        return frames.slots_from_levels([level[0].cpu().numpy() for level in levels])

    @torch.inference_mode()
    def decode(self, codes: NDArray[np.integer], *, noise: bool = False) -> NDArray[np.float32]:
        """Audio, float32 of shape (2,048 * frames,) in -1..1, of codes of shape (frames, 7).

        SNAC's decoder adds fresh random noise at each call; it is off unless asked for, so that the
        same codes give the same samples.
        """
        levels = [
            torch.from_numpy(level)[None].to(self.device)
            for level in frames.levels_from_slots(codes)
        ]
        blocks = [block for block in self.model.modules() if isinstance(block, NoiseBlock)]
        handles = []
        if not noise:
            # A hook's return value replaces the block's output: hand its input through.
            handles = [
                block.register_forward_hook(lambda _m, args, _o: args[0]) for block in blocks
            ]
        try:
            audio = self.model.decode(levels)
        finally:
            for handle in handles:
                handle.remove()
        return audio[0, 0].float().cpu().numpy()


def read_identity(folder: Path, *, allow_untrained: bool = False) -> CodecIdentity:
    """Identity of the codec in `folder`, from its files alone: no model is built.

    Raises:
        WeightsError: config.json is missing or broken, the header of a decode-only codec is, or
            there are no weights, or random ones in a form, and `allow_untrained` is not set.
    """
    config = _read_config(folder)
    weights = codec_weights_file(folder)
    config_sha256 = sha256_of(folder / "config.json")
    header = None if weights is None else read_form(weights)
    if header is not None and not header.trained and not allow_untrained:
        raise WeightsError(
            f"{folder}: a form of random weights; make it of a trained codec, or ask for an "
            "untrained codec explicitly (allow_untrained)"
        )
    if weights is None:
        if not allow_untrained:
            raise WeightsError(
                f"{folder}: no weights file ({' or '.join(CODEC_WEIGHTS)}); give a folder with "
                "trained weights, or ask for an untrained codec explicitly (allow_untrained)"
            )
        weights_sha256 = hashlib.sha256(f"seed {UNTRAINED_SEED}".encode()).hexdigest()
    else:
        weights_sha256 = sha256_of(weights)
    if header is not None:
        parameter_count = header.parameter_count
    else:
        with torch.device("meta"):
            parameter_count = sum(p.numel() for p in SNAC(**config).parameters())
    trained = weights is not None and (header is None or header.trained)
    kind = "snac" if trained else "untrained"
    kind += "" if header is None else f"-{header.form}"
    name = f"{kind}-{parameter_count / 1e6:.1f}M-{weights_sha256[:12]}"
    return CodecIdentity(name, weights_sha256, config_sha256, trained, parameter_count)


def load_codec(
    folder: Path, device: str | torch.device = "cpu", *, allow_untrained: bool = False
) -> Codec:
    """The codec in `folder` (config.json and weights, as `SNAC.from_pretrained` takes them).

    With `allow_untrained`, a folder with config.json alone gives random weights from a fixed seed.
    A decode-only folder (`server.codec_form`) gives a codec that decodes alike and cannot encode.

    Raises:
        WeightsError: files are missing, unreadable, or do not fit the token layout.
    """
    identity = read_identity(folder, allow_untrained=allow_untrained)
    config = _read_config(folder)
    weights = codec_weights_file(folder)
    if weights is not None and read_form(weights) is not None:
        model = load_decode_only(config, weights)
    elif weights is not None:
        model = SNAC(**config)
        _load_weights(model, weights)
    else:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(UNTRAINED_SEED)
            model = SNAC(**config)
    model = model.float().eval().requires_grad_(False)
    fold_weight_norm(model)
    target = torch.device(device)
    return Codec(model.to(target), identity, target)


def use_threads(count: int) -> None:
    """Have torch compute with so many threads what the calling thread asks of it from now on."""
    torch.set_num_threads(count)


def use_exact_float32() -> None:
    """Turn TF32 off: torch allows it in cuDNN by default, and it changes codes."""
    _allow_tf32(allowed=False)


@contextmanager
def float32_products(*, tf32: bool) -> Generator[None]:
    """Products of float32 as said while the block runs, exact after it.

    The switch is the process': a thread that needs the other kind waits.
    """
    with _SWITCH:
        _allow_tf32(allowed=tf32)
        try:
            yield
        finally:
            _allow_tf32(allowed=False)


def _allow_tf32(*, allowed: bool) -> None:
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    config = read_json(
        path,
        absent="a codec folder holds config.json and weights",
        remedy="fetch the codec again",
    )
    strides = [frames.LATENTS_PER_FRAME // len(slots) for slots in frames.SLOTS_OF_LEVEL]
    rates: object = config.get("encoder_rates")
    whole = isinstance(rates, list) and all(type(rate) is int for rate in rates)
    samples_per_latent = math.prod(cast("list[int]", rates)) if whole else rates
    expected = {
        "sampling_rate": (config.get("sampling_rate"), frames.SAMPLE_RATE_HZ),
        "codebook_size": (config.get("codebook_size"), frames.CODEBOOK_SIZE),
        "vq_strides": (config.get("vq_strides"), strides),
        "product of encoder_rates": (samples_per_latent, frames.SAMPLES_PER_LATENT),
    }
    for field, (value, needed) in expected.items():
        if value != needed:
            raise WeightsError(
                f"{path}: {field} is {value}, the token layout needs {needed}; use SNAC 24 kHz or a"
                " codec of the same layout"
            )
    return config


def _load_weights(model: SNAC, path: Path) -> None:
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            state = load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
        model.load_state_dict(state)
    except Exception as error:  # torch and safetensors raise many unrelated types here
        detail = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise WeightsError(
            f"{path}: weights do not load ({detail}); fetch the codec again, or check that "
            "config.json belongs to these weights"
        ) from error
