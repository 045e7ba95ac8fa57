"""Headers of safetensors files: every tensor where and as large as it must be, or one line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from safetensors.numpy import save_file

from server.errors import WeightsError
from server.tensor_files import StoredTensor, stored_tensors

if TYPE_CHECKING:
    from pathlib import Path

A = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}
B = {"dtype": "BF16", "shape": [4], "data_offsets": [24, 32]}


def write(path: Path, header: object, size: int = 32) -> None:
    data = (header if isinstance(header, str) else json.dumps(header)).encode()
    path.write_bytes(len(data).to_bytes(8, "little") + data + bytes(size))


def test_tensors_are_found_as_the_library_writes_them(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    values = {"b": np.zeros((2, 0), np.float16), "a": np.ones((2, 3), np.float32)}
    values["c"] = np.ones((), np.uint8)
    save_file(values, path, metadata={"format": "pt"})
    found = stored_tensors(path)
    assert {name: (t.dtype, t.shape) for name, t in found.items()} == {
        "a": ("F32", (2, 3)),
        "b": ("F16", (2, 0)),
        "c": ("U8", ()),
    }
    data = path.read_bytes()
    assert data[found["a"].start : found["a"].end] == values["a"].tobytes()
    write(path, {"b": B, "a": A})
    start = path.stat().st_size - 32
    assert list(stored_tensors(path).items()) == [
        ("a", StoredTensor("F32", (2, 3), start, start + 24)),
        ("b", StoredTensor("BF16", (4,), start + 24, start + 32)),
    ]


@pytest.mark.parametrize(
    ("header", "fault"),
    [
        ({"a": A, "b": {**B, "data_offsets": []}}, "damaged at 'b'"),
        ({"a": A, "b": {**B, "data_offsets": [24]}}, "damaged at 'b'"),
        ({"a": A, "b": {**B, "data_offsets": ["24", "32"]}}, "damaged at 'b'"),
        ({"a": A, "b": {**B, "data_offsets": [-8, 0]}}, "damaged at 'b'"),
        ({"a": A, "b": {**B, "data_offsets": [32, 24]}}, "8 bytes, its data_offsets have -8"),
        ({"a": A, "b": {**B, "data_offsets": [24, 30]}}, "8 bytes, its data_offsets have 6"),
        ({"a": A, "b": {**B, "data_offsets": [16, 24]}}, "'b' begins within the one before it"),
        ({"a": {**A, "data_offsets": [8, 32]}}, "'a' leaves a gap"),
        ({"a": A}, "bytes, its header says"),
        ({"a": A, "b": {**B, "dtype": "F32"}}, "F32 of shape .* are 16 bytes, .* have 8"),
        ({"a": A, "b": {**B, "dtype": "FP7"}}, "dtype 'FP7' is unknown"),
        ({"a": A, "b": {**B, "dtype": ["BF16"]}}, r"dtype \['BF16'\] is unknown"),
        ({"a": A, "b": {**B, "shape": [-2, -2]}}, r"shape is \[-2, -2\]"),
        ({"a": A, "b": {**B, "shape": [1e300]}}, "shape is"),
        ({"a": A, "b": {**B, "shape": 4}}, "shape is 4"),
        ({"a": A, "b": {**B, "shape": [True, 4]}}, "shape is"),
        ({"a": A, "b": {"dtype": "BF16", "shape": [4]}}, "damaged at 'b' .'data_offsets'"),
        ({"a": A, "b": 3}, "damaged at 'b' .it is 3"),
        ({"a": A, "b": B, "__metadata__": 3}, "damaged at '__metadata__'"),
        ([], "the header is damaged"),
        ('{"a": ' * 50_000, "the header is damaged .nested"),
        ('{"a": 1e999}', "the header is damaged .1e999 is no finite number"),
        ('{"a": {}, "a": {}}', "'a' stands there twice"),
    ],
)
def test_a_damaged_header_is_one_line(tmp_path: Path, header: object, fault: str) -> None:
    path = tmp_path / "model.safetensors"
    write(path, header)
    with pytest.raises(WeightsError, match=fault) as caught:
        stored_tensors(path)
    text = str(caught.value)
    assert text.startswith(f"{path}: ")
    assert "copy or download the file again" in text
    assert "\n" not in text
