"""The codec's speed by its command, and what it refuses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from server.codec import load_codec
from server.codec_decoder import CodecDecoder, DecoderOptions
from server.codec_network import DecoderNetwork
from server.errors import ConfigurationError
from speech_assets.errors import ConfigError
from speech_assets.results.result import read_result
from speech_assets.results.tables import codec_speed_table
from speech_assets.work.codec_speed import Way, error_db, parse_shapes, parse_ways, rows_of

ROOT = Path(__file__).parents[2]
CODEC = ROOT / "server" / "embedded" / "codec"


def measure(out: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "speech_assets.work.codec_speed", "--device", "cpu"]
    return subprocess.run(
        [*command, "--out", str(out), *arguments],
        env={**os.environ, "TMPDIR": str(out), "OMP_NUM_THREADS": "1"},  # Locks of its own.
        capture_output=True, text=True, check=False, cwd=ROOT, timeout=200,
    )  # fmt: skip


def test_each_way_has_its_time_and_its_error_beside_float32(tmp_path: Path) -> None:
    ways = "float32/torch,bfloat16/auto"
    done = measure(tmp_path, "--ways", ways, "--shapes", "1x2,2x1", "--rounds", "1")
    assert done.returncode == 0, done.stderr
    (path,) = tmp_path.glob("*.json")
    value = read_result(path)
    assert value["reduced"]
    rows = {(row["way"], row["frames"], row["rows"]): row for row in value["rows"]}
    assert len(rows) == 4
    assert rows["float32/torch", 1, 2]["error_db"] == -200.0
    assert -60 < rows["bfloat16/auto", 2, 1]["error_db"] < -30
    assert all(row["us_per_frame_p50"] > 0 for row in rows.values())
    table = codec_speed_table([value])
    assert "1 frames x 2 rows, us a frame | 2 frames x 1 rows, us a frame | error, dB" in table
    assert "| float32/torch |" in table
    assert "(reduced)" in table


def test_what_cannot_be_measured_is_refused_by_its_name(tmp_path: Path) -> None:
    done = measure(tmp_path, "--ways", "float16/triton", "--shapes", "1x1")
    assert done.returncode == 2
    assert (
        "codec kernels triton: they decode in float16 or bfloat16, cropped, on CUDA" in done.stderr
    )
    assert "Traceback" not in done.stderr
    with pytest.raises(ConfigError, match="--ways 'int3/torch': give DTYPE/KERNELS"):
        parse_ways("float32/torch,int3/torch")
    for text in ("4", "0x4", "ax1", "31x1"):
        with pytest.raises(ConfigError, match=f"--shapes '{text}'"):
            parse_shapes(text)
    assert parse_ways(" float16/auto ") == [Way("float16", "auto")]


def test_rows_lie_at_many_places_of_their_utterances() -> None:
    rows = rows_of(4, 64)
    assert len({row.start for row in rows}) > 20
    assert min(row.start for row in rows) >= 12


def test_the_error_is_power_over_power() -> None:
    exact = np.array([[1.0, -1.0]])
    assert error_db(exact * 1.1, exact) == pytest.approx(-20.0)
    assert error_db(exact, exact) == -200.0


def test_without_triton_or_a_gpu_layers_are_pytorchs() -> None:
    decoder = CodecDecoder(load_codec(CODEC), DecoderOptions("float32", hops=(1,)))
    assert type(decoder._network) is DecoderNetwork
    with pytest.raises(ConfigurationError, match="codec kernels fast: use one of auto"):
        CodecDecoder(load_codec(CODEC), DecoderOptions(kernels="fast"))  # pyright: ignore[reportArgumentType]
