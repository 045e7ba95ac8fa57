"""Where results go is asked for before the work, by every command of the frame."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from resources.errors import StoreError
from resources.store import Store
from speech_assets.errors import ConfigError
from speech_assets.work.out_place import check_out, check_store

ROOT = Path(__file__).parents[2]


def refusal(out: Path, *, is_file: bool = False) -> str:
    with pytest.raises(ConfigError) as caught:
        check_out(out, is_file=is_file)
    return str(caught.value)


def test_what_is_there_or_can_be_made_is_taken(tmp_path: Path) -> None:
    check_out(tmp_path, is_file=False)
    check_out(tmp_path / "a" / "b", is_file=False)
    check_out(Path("results"), is_file=False)
    check_out(tmp_path / "a" / "b.json", is_file=True)
    (tmp_path / "b.json").touch()
    check_out(tmp_path / "b.json", is_file=True)


@pytest.mark.parametrize("is_file", [True, False])
def test_what_lies_below_a_file_is_refused(tmp_path: Path, is_file: bool) -> None:
    (tmp_path / "file").touch()
    what = "file" if is_file else "folder"
    assert refusal(tmp_path / "file" / "x", is_file=is_file) == (
        f"--out {tmp_path}/file/x: {tmp_path}/file is no folder; give a {what} that can be made"
    )


def test_a_file_is_no_folder_and_a_folder_no_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "is no folder" in refusal(tmp_path / "file")
    assert "it is a folder; give a file" in refusal(tmp_path, is_file=True)


def test_a_url_and_what_is_no_name_are_refused(tmp_path: Path) -> None:
    assert "it is a URL; give a folder of this machine" in refusal(Path("s3://bucket/x"))
    assert "no name has a NUL in it; give another folder" in refusal(tmp_path / "a\0b")
    assert "File name too long; give a folder" in refusal(tmp_path / ("x" * 300))


@pytest.mark.skipif(os.geteuid() == 0, reason="this user may write everywhere")
def test_where_nothing_may_be_written_is_said(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert f"{tmp_path} cannot be written" in refusal(tmp_path / "x")


def test_a_store_may_be_a_url_and_is_tried(tmp_path: Path) -> None:
    check_store(str(tmp_path / "store"))
    check_store(f"file://{tmp_path}/store")
    check_store("memory://store")
    assert Store("memory://store").keys("") == []
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").touch()
    for root in (f"{tmp_path}/file", f"file://{tmp_path}/file"):
        with pytest.raises(ConfigError, match="file is no folder; give a folder that can be made"):
            check_store(root)
    with pytest.raises(ConfigError, match="give a folder, or a URL such as s3://bucket/prefix"):
        check_store("s3:/bucket")
    with pytest.raises(StoreError, match=r"^--out nope://x: cannot be opened: Protocol not known"):
        check_store("nope://x")


@pytest.mark.parametrize(
    "words",
    [
        ("bench_backfill", "--partitions", "2"),
        ("bench_tokenize", "--whole"),
        ("lead_ins", "--count", "1"),
        ("codec_speed", "--device", "cpu"),
        ("soak", "--streams", "2"),
        ("cost_curve",),
    ],
)
def test_nothing_is_measured_whose_result_would_be_lost(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    (tmp_path / "file").touch()
    module, *rest = words
    done = subprocess.run(
        [sys.executable, "-m", f"speech_assets.work.{module}", *rest,
         "--out", str(tmp_path / "file" / "x.json")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )  # fmt: skip
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert line.startswith(f"error: --out {tmp_path}/file/x.json: {tmp_path}/file is no folder")
