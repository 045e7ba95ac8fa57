"""The frame of work processes: how they say how far they are."""

from __future__ import annotations

import pytest

from speech_assets.work import worker


@pytest.mark.parametrize(
    ("total", "amount", "unit", "says"),
    [
        (128, 3, "texts", "calibration: 3 of 128 texts, about "),
        (1.5, 0.25, "h", "calibration: 0.25 of 1.50 h, about "),
    ],
)
def test_what_is_counted_is_said_in_whole_numbers(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    total: float,
    amount: float,
    unit: str,
    says: str,
) -> None:
    monkeypatch.setattr(worker, "PROGRESS_EVERY_S", 0.0)
    monkeypatch.setenv("SPEECH_BAR", "1")
    reporter = worker.Reporter("calibration")
    reporter.start(total, unit)
    reporter.advance(amount)
    reporter.close()
    said = capsys.readouterr().err
    assert says in said
    bar = f"{amount}/{total}" if isinstance(total, int) else f"{amount:.2f}/{total:.2f}"
    assert f"{bar} {unit}" in said


def test_what_is_gone_through_next_is_counted_from_its_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(worker, "PROGRESS_EVERY_S", 0.0)
    reporter = worker.Reporter("bench_tokenize")
    for total, unit in ((2, "copies"), (8, "shards")):
        reporter.start(total, unit)
        reporter.advance(1)
    reporter.close()
    first, second = capsys.readouterr().err.splitlines()
    assert "bench_tokenize: 1 of 2 copies" in first
    assert "bench_tokenize: 1 of 8 shards" in second
