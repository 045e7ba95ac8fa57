"""The decoder's fused kernels give what PyTorch's layers give: interpreted, where Triton is."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from interpreted_kernels import run_interpreted

from server.codec import load_codec
from server.codec_network import DecoderNetwork
from server.codec_rows import DecodeRow, stage_rows, unstage_rows

ROOT = Path(__file__).parents[2]
CODEC = ROOT / "server" / "embedded" / "codec"
HAS_TRITON = importlib.util.find_spec("triton") is not None
LARGEST_ERROR_DB = -45.0


def interpreted(folder: Path) -> None:
    """What the child of the test below runs, in a process whose Triton is an interpreter's."""
    from server.codec_fused import FusedNetwork

    config = json.loads((CODEC / "config.json").read_text())
    config |= {"encoder_dim": 12, "decoder_dim": 256}
    (folder / "config.json").write_text(json.dumps(config))
    codec = load_codec(folder, allow_untrained=True)
    network = DecoderNetwork(codec, torch.float32, noise=True)
    geometry = network.geometry(4, None)
    codes = np.random.default_rng(4).integers(0, 4_096, 7 * 9)
    # At an utterance's start, within it, and at its end.
    rows = [DecodeRow(codes, start, 4, 36, seed) for seed, start in enumerate((0, 16, 32))]
    staged = torch.from_numpy(stage_rows(geometry, rows))
    with torch.inference_mode():
        exact = network.run(geometry, unstage_rows(staged))
        made = FusedNetwork(codec, torch.float16, noise=True).run(geometry, unstage_rows(staged))
    for row, (a, b) in enumerate(zip(exact, made, strict=True)):
        error_db = 20 * float(torch.log10((a - b.float()).norm() / a.norm()))
        assert error_db < LARGEST_ERROR_DB, (row, error_db)


@pytest.mark.skipif(not HAS_TRITON, reason="needs Triton: make test-kernels")
@pytest.mark.timeout(900)
def test_interpreted_kernels_give_the_audio_of_the_eager_decoder(tmp_path: Path) -> None:
    run_interpreted(__file__, tmp_path, 880)
