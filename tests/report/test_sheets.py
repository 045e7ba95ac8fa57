"""Damaged manifests and descriptions of samples: passed over with the reason, the page is made."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

import pytest
from report.filled import MANIFEST, A, evidence_in, put_samples, put_wer, real_wavs, scores

from resources.store import Store
from speech_assets.errors import ConfigError
from speech_assets.report.check import check_report
from speech_assets.report.document import build_report
from speech_assets.report.page import render_page
from speech_assets.report.sheets import parse_manifest, parse_samples

if TYPE_CHECKING:
    from pathlib import Path

CLIP = {
    "kind": "short",
    "sentence": "Try the blue one first.",
    "seed": 1,
    "file": "samples/p/000-1.wav",
    "seconds": 2.0,
    "finish_reason": "stop",
}
SAMPLES: dict[str, Any] = {"schema_version": 3, "clips": [CLIP]}
TOTALS = cast("dict[str, Any]", MANIFEST["totals"])
NOTHING = [b"", b"{", b"\xff", b"[]", b"null", b"3", b"{}", b"[" * 100_000, b"9" * 5_000]


def data_of(value: Any) -> bytes:
    return json.dumps(value).encode()


def without(value: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: held for key, held in value.items() if key != name}


def test_whole_ones_are_read() -> None:
    assert parse_samples(data_of(SAMPLES), "s") == SAMPLES
    assert parse_manifest(data_of(MANIFEST), "m") == MANIFEST


@pytest.mark.parametrize(
    "data",
    [
        *NOTHING,
        *(data_of(without(SAMPLES, name)) for name in SAMPLES),
        data_of({**SAMPLES, "schema_version": 2}),
        data_of({**SAMPLES, "clips": []}),
        data_of({**SAMPLES, "clips": None}),
        data_of({**SAMPLES, "clips": {}}),
        data_of({**SAMPLES, "clips": [1]}),
        *(data_of({**SAMPLES, "clips": [without(CLIP, name)]}) for name in CLIP),
        *(data_of({**SAMPLES, "clips": [{**CLIP, name: None}]}) for name in CLIP),
        data_of({**SAMPLES, "clips": [{**CLIP, "seconds": float("nan")}]}),
        data_of({**SAMPLES, "clips": [{**CLIP, "seed": 10**400}]}),
        data_of({**SAMPLES, "clips": [{**CLIP, "file": "samples/p/../../secret"}]}),
    ],
)
def test_damaged_samples_are_refused_in_one_line(data: bytes) -> None:
    with pytest.raises(ConfigError, match=r"^samples/p/samples\.json.*again$"):
        parse_samples(data, "samples/p/samples.json")


@pytest.mark.parametrize(
    "data",
    [
        *NOTHING,
        *(data_of(without(MANIFEST, name)) for name in MANIFEST),
        data_of({**MANIFEST, "schema_version": 2}),
        *(data_of({**MANIFEST, name: None}) for name in MANIFEST),
        *(data_of({**MANIFEST, "totals": without(TOTALS, name)}) for name in TOTALS),
        data_of({**MANIFEST, "totals": {**TOTALS, "tokens": 10**400}}),
        data_of({**MANIFEST, "shards": [{}]}),
        data_of({**MANIFEST, "shards": [{"agreement": "x"}]}),
        data_of({**MANIFEST, "quarantine": {"empty": "x"}}),
        data_of({**MANIFEST, "made_with": {}}),
    ],
)  # fmt: skip
def test_damaged_manifests_are_refused_in_one_line(data: bytes) -> None:
    with pytest.raises(ConfigError, match=r"^manifests/train\.json.*again$"):
        parse_manifest(data, "manifests/train.json")


@pytest.mark.parametrize("data", [b"[]", b"null", b"{", b'{"schema_version": 2}', b"{}"])
def test_a_report_passes_over_what_is_damaged_and_says_why(tmp_path: Path, data: bytes) -> None:
    store = Store(str(tmp_path))
    put_samples(store, A, real_wavs(1))
    put_wer(store, A, scores((0, 1)))
    store.write_bytes(f"samples/{A}/samples.json", data)
    store.write_bytes("manifests/train.json", data)
    store.write_json("manifests/test.json", {**MANIFEST, "split": "test"})
    evidence = evidence_in(store)
    assert [sheet.key for sheet in evidence.manifests] == ["manifests/test.json"]
    assert evidence.samples == {}
    why = [line.partition(" ")[0].rstrip(":") for line in evidence.unreadable]
    assert why == ["manifests/train.json", f"samples/{A}/samples.json"]
    page = render_page(build_report(store, evidence))
    assert "2 files could not be read and were passed over" in page
    assert check_report(store, page, "index.html").faults == ()
