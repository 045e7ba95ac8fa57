"""Cores that the project may use: what is said, or what this process may run on."""

from __future__ import annotations

import os

import pytest

from speech_assets.cores import core_count
from speech_assets.errors import ConfigError


def test_without_a_number_the_cores_count_that_the_process_may_run_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SPEECH_THREADS", raising=False)
    free = os.sched_getaffinity(0)
    assert core_count() == len(free)
    try:
        os.sched_setaffinity(0, {min(free)})
        assert core_count() == 1
    finally:
        os.sched_setaffinity(0, free)
    monkeypatch.setenv("SPEECH_THREADS", "7")
    assert core_count() == 7


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5", " 2", "4097", "9" * 5_000])
def test_a_number_of_cores_that_is_none_is_refused_in_one_short_line(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPEECH_THREADS", text)
    with pytest.raises(ConfigError, match=r"SPEECH_THREADS is .*cores from 1 to 4,096") as caught:
        core_count()
    assert len(str(caught.value)) < 150
