"""The tokenization's benchmark by its command, on eight shards of one short clip each."""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from speech_assets.corpus.benchmark_corpora import tiny_corpus
from speech_assets.results.result import read_result
from speech_assets.work import worker
from speech_assets.work.bench_tokenize import _Bench

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def profiles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_corpus(tmp_path_factory.mktemp("corpus"), 8)[0]


def started(
    folder: Path, profiles: Path, *arguments: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            *(sys.executable, "-m", "speech_assets.work.bench_tokenize"),
            *(*arguments, "--out", str(folder)),
        ],
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "SPEECH_PROFILES": str(profiles),
            "SPEECH_PROFILE": "tiny",
            **variables,
        },
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        timeout=280,
    )


def bench(folder: Path, profiles: Path, *arguments: str) -> dict[str, Any]:
    done = started(folder, profiles, *arguments)
    assert done.returncode == 0, done.stderr[-3_000:]
    (path,) = folder.rglob("*/*/*/*.json")
    return read_result(path)


@pytest.mark.timeout(300)
def test_a_backfill_through_dagster_beside_the_bare_encoder(tmp_path: Path, profiles: Path) -> None:
    found = bench(tmp_path, profiles, "--rounds", "1")
    assert (found["kind"], found["reduced"]) == ("tokenize", True)
    assert found["command"] == "python -m speech_assets.work.bench_tokenize --rounds 1"
    assert (found["config"]["shards"], found["config"]["corpus"]) == (8, "tiny")
    assert found["figures"]["agreement"]["value"] == 1.0
    assert found["figures"]["share_of_encoder"]["value"] > 0
    assert found["figures"]["speech_capacity_hours_per_min"]["value"] > 0


@pytest.mark.timeout(300)
def test_ways_of_encoding_are_named_in_the_command(tmp_path: Path, profiles: Path) -> None:
    found = bench(tmp_path, profiles, "--ablate", "--rounds=1", "--ways", "16 clips a batch")
    assert found["command"] == (
        "python -m speech_assets.work.bench_tokenize --ablate --rounds=1 --ways '16 clips a batch'"
    )
    [row] = found["rows"]
    assert (row["way"], row["agreement"]) == ("16 clips a batch", 1.0)
    assert len(row["loop_s"]) == 1


@pytest.mark.timeout(300)
def test_the_whole_pipeline_from_archives_to_tokens(tmp_path: Path, profiles: Path) -> None:
    arguments = ("--whole", "--repeat", "0", "--rounds", "1", "--shards", "8")
    found = bench(tmp_path, profiles, *arguments)
    assert (found["kind"], found["reduced"]) == ("tokenize_pipeline", True)
    assert found["config"]["speech_processes"] >= 1
    assert found["figures"]["agreement"]["value"] == 1.0
    assert found["figures"]["pipeline_hours_per_min"]["value"] > 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--ablate --ways nope", "--ways 'nope': of 16 clips a batch; batches by samples; "),
        ("--shapes absent.json", "--shapes: absent.json: no such file"),
        ("--whole --speech-processes 50 --shards 8", "50 speech processes need 2 shards each, the"),
        ("--whole --speech-processes 5", "5 speech processes need 2 shards each, there are 8; "),
        ("--shards 3", "3 shards are too few to measure a backfill by; take at least 8"),
        ("--profile", "--profile is for --ablate: give --ablate, too, or leave --profile out"),
        ("--ways nope --curve", "--ways is for --ablate"),
        ("--speech-processes 2 --ablate", "--speech-processes is for --whole"),
        ("--ablate --whole", "argument --whole: not allowed with argument --ablate"),
        ("--curve --without-dagster", "not allowed with argument --curve"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_speech_is_made_for_it(
    tmp_path: Path, profiles: Path, words: str, says: str
) -> None:
    done = started(tmp_path / "out", profiles, *words.split(), TMPDIR=str(tmp_path))
    assert done.returncode == 2
    error = done.stderr.splitlines()[-1]
    assert says in error
    assert "making speech" not in done.stderr
    assert not list(tmp_path.iterdir())
    if "shapes" in words:
        assert "encoder_tuning --out FILE makes one" in error


def test_what_repeated_clips_take_is_said_and_refused_where_there_is_no_room(
    tmp_path: Path, profiles: Path
) -> None:
    words = ("--curve", "--repeat", "100000000")
    done = started(tmp_path / "out", profiles, *words, TMPDIR=str(tmp_path))
    assert done.returncode == 2
    said, refused = done.stderr.splitlines()
    assert re.match(r"--repeat 100000000 takes up to [0-9.]+ GB in .* until the end", said)
    assert "free; free space, or repeat less, or set TMPDIR to a folder on a larger" in refused
    assert not list(tmp_path.iterdir())


@pytest.mark.timeout(120)
def test_an_interrupted_benchmark_does_not_say_that_something_is_kept(
    tmp_path: Path, profiles: Path
) -> None:
    environment = {
        **os.environ,
        "TMPDIR": str(tmp_path),
        "SPEECH_PROFILES": str(profiles),
        "SPEECH_PROFILE": "tiny",
    }
    with subprocess.Popen(
        [sys.executable, "-m", "speech_assets.work.bench_tokenize", "--curve", "--out", "out"],
        env=environment, cwd=ROOT, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("making speech"):
                break
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
    assert process.returncode == 130
    assert "interrupted; nothing is kept, and the next run begins anew" in said
    assert not list(tmp_path.glob("speech-assets-bench-tokenize-*"))


@pytest.mark.parametrize(
    ("rounds", "shards", "seconds", "is_reduced"),
    [
        (3, 0, [10.0, 12.0], False),
        (3, 0, [9.9, 12.0], True),
        (3, 0, [], True),
        (2, 0, [12.0], True),
        (3, 8, [12.0], True),
    ],
)
def test_a_measurement_of_few_rounds_few_shards_or_short_runs_is_reduced(
    rounds: int, shards: int, seconds: list[float], *, is_reduced: bool
) -> None:
    arguments = argparse.Namespace(rounds=rounds, shards=shards)
    nothing = cast("Any", None)
    bench = _Bench(arguments, "", nothing, nothing, nothing, [], nothing, 1.0, None)
    assert bench.is_reduced(seconds) == is_reduced


def test_a_command_names_neither_where_its_result_went_nor_this_machines_folders() -> None:
    parser = argparse.ArgumentParser(prog="python -m a.b")
    typed = ["--out", "/x", "--shapes", "/home/somebody/s.json", "--out=y", "--exit-on-stdin-eof"]
    assert worker.command_of(parser, typed) == "python -m a.b --shapes s.json"
