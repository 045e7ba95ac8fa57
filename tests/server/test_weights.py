"""Weights from a folder or from the hub, the hub being a local server that speaks its protocol."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pytest

from server import noted_hashes, weights
from server.errors import ConfigurationError
from server.files import sha256_of
from server.weights import WeightsLocation, fingerprint, not_pinned, parse_location

if TYPE_CHECKING:
    from collections.abc import Iterator

CODEC = Path(__file__).parents[2] / "server" / "embedded" / "codec"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(BaseHTTPRequestHandler):
    """The part of the hub that a download of one repository uses: its listing and its files."""

    files: ClassVar[dict[str, bytes]] = {
        "config.json": (CODEC / "config.json").read_bytes(),
        "pytorch_model.bin": (CODEC / "pytorch_model.bin").read_bytes(),
        "README.md": b"not wanted",
    }
    asked: ClassVar[list[str]] = []

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        self.asked.append(self.path)
        if "/gated/" in self.path or self.path.startswith("/gated"):
            self._error(403, "GatedRepo", "Access to model gated/model is restricted")
        elif "/owner/model" not in self.path:
            self._error(401, "RepoNotFound", "Repository not found")
        elif self.path.startswith(
            (
                f"/api/models/owner/model/revision/{COMMIT}",
                f"/api/models/owner/model/tree/{COMMIT}",
                "/api/models/owner/model/revision/main",
            )
        ):
            listing = [{"rfilename": name} for name in self.files]
            value: object = {"id": "owner/model", "sha": COMMIT, "siblings": listing}
            if "/tree/" in self.path:
                value = [
                    {"type": "file", "path": name, "size": len(data), "oid": "0" * 40}
                    for name, data in self.files.items()
                ]
            self._send(json.dumps(value).encode(), {"Content-Type": "application/json"}, body=body)
        elif self.path.startswith(f"/owner/model/resolve/{COMMIT}/"):
            data = self.files[self.path.rsplit("/", 1)[1]]
            etag = hashlib.sha256(data).hexdigest()
            self._send(data, {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT}, body=body)
        else:
            self._error(404, "RevisionNotFound", "Invalid rev id")

    def _send(self, data: bytes, headers: dict[str, str], *, body: bool) -> None:
        self.send_response(200)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        if body:
            self.wfile.write(data)

    def _error(self, status: int, code: str, message: str) -> None:
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("X-Error-Message", message)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture(scope="module")
def hub() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def download(
    location: str, endpoint: str, cache: Path, *, offline: bool = False
) -> tuple[str, str]:
    """What `local_folder` gives or says, in a process of its own: the address is read at import."""
    code = (
        "import sys; from server.weights import *; from server.errors import ServerError\n"
        "try:\n"
        "    location = parse_location(sys.argv[1])\n"
        "    folder = local_folder(location, CODEC_FILES)\n"
        "    print(folder)\n"
        "    if warning := not_pinned(location, folder): print(warning, file=sys.stderr)\n"
        "except ServerError as error: print(f'{type(error).__name__}: {error}', file=sys.stderr)"
    )
    environment = {
        **os.environ,
        "HF_ENDPOINT": endpoint,
        "HF_HOME": str(cache),
        "HF_HUB_OFFLINE": "1" if offline else "0",
        "HF_HUB_DISABLE_XET": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", code, location],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout.strip(), done.stderr.strip()


def test_a_pinned_repository_is_downloaded_once_and_only_the_files_that_matter(
    hub: str, tmp_path: Path
) -> None:
    folder, _ = download(f"owner/model@{COMMIT}", hub, tmp_path)
    names = sorted(path.name for path in Path(folder).iterdir())
    assert names == ["config.json", "pytorch_model.bin"]
    assert (Path(folder) / "pytorch_model.bin").read_bytes() == Hub.files["pytorch_model.bin"]
    again, _ = download(f"owner/model@{COMMIT}", hub, tmp_path, offline=True)
    assert again == folder


def test_a_branch_is_downloaded_with_the_commit_that_it_is_now(hub: str, tmp_path: Path) -> None:
    folder, said = download("owner/model@main", hub, tmp_path)
    assert parse_location("owner/model@main").commit(Path(folder)) == COMMIT
    assert "owner/model@main: 'main' is a branch or tag" in said
    assert f"it is {COMMIT} now, so write @{COMMIT} in its place" in said
    _, said = download(f"owner/model@{COMMIT}", hub, tmp_path)
    assert "branch" not in said


def test_gated_access_is_explained_in_one_line(hub: str, tmp_path: Path) -> None:
    _, said = download(f"gated/model@{COMMIT}", hub, tmp_path)
    assert "WeightsError" in said
    assert "access is gated; accept the terms" in said
    assert "HF_TOKEN" in said


def test_an_unknown_repository_and_an_unknown_revision_are_told_apart(
    hub: str, tmp_path: Path
) -> None:
    _, said = download(f"nobody/nothing@{COMMIT}", hub, tmp_path)
    assert "no such repository, or a private one" in said
    _, said = download("owner/model@0000000", hub, tmp_path)
    assert "no such revision" in said


def test_without_a_network_the_remedy_is_a_folder(tmp_path: Path) -> None:
    _, said = download(f"owner/model@{COMMIT}", "http://127.0.0.1:9", tmp_path, offline=True)
    assert "could not be reached" in said
    assert "give a folder" in said


def test_a_folder_is_itself() -> None:
    assert parse_location(str(CODEC)) == WeightsLocation(folder=CODEC)
    assert parse_location("codec", base=CODEC.parent).folder == CODEC


def test_what_cannot_move_is_not_warned_of() -> None:
    assert not_pinned(WeightsLocation(folder=CODEC), CODEC) is None
    assert WeightsLocation(folder=CODEC).commit(Path(COMMIT)) is None
    pinned = parse_location(f"owner/model@{COMMIT}")
    assert not_pinned(pinned, Path("snapshots") / COMMIT) is None
    short = parse_location("owner/model@0123456")
    warning = not_pinned(short, Path("elsewhere"))
    assert warning is not None
    assert warning.endswith("write a commit in its place")


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose file is above what enters a fingerprint as it is, and was not just made."""
    monkeypatch.setattr(weights, "_LARGE_BYTES", 1_000)
    monkeypatch.setattr(noted_hashes, "_SETTLED_NS", -(10**18))
    monkeypatch.setattr(noted_hashes, "_known", {})
    (tmp_path / "model.safetensors").write_bytes(bytes(30_500))
    (tmp_path / "config.json").write_text("{}")
    return tmp_path


def forget() -> None:
    """As another process would find it."""
    noted_hashes._known.clear()


def flipped(path: Path, place: int, folder: Path) -> str:
    """Hash of `folder` while the byte at `place` of its file `path` is another one."""
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)
    forget()
    changed = fingerprint(folder)
    data[place] ^= 1
    path.write_bytes(data)
    forget()
    return changed


def test_of_a_large_file_every_byte_counts(large: Path) -> None:
    path = large / "model.safetensors"
    before = fingerprint(large)
    assert len({flipped(path, place, large) for place in (0, 499, 5_000, 17_777, 30_499)}) == 5
    assert before not in {flipped(path, place, large) for place in (5_000, 30_499)}
    assert fingerprint(large) == before
    path.rename(large / "other.safetensors")
    assert fingerprint(large) != before


def test_of_small_files_the_hash_is_that_of_their_bytes(tmp_path: Path) -> None:
    """Published results hold it."""
    path = tmp_path / "model.safetensors"
    path.write_bytes(bytes(1_000))
    before = fingerprint(tmp_path)
    whole = hashlib.sha256(b"model.safetensors 1000\n" + bytes(1_000)).hexdigest()
    assert before == whole
    assert all(flipped(path, place, tmp_path) != before for place in (0, 501, 999))


def read_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether another process, which trusts notes, hashes the large file."""
    read: list[Path] = []

    def watched(path: Path) -> str:
        read.append(path)
        return sha256_of(path)

    forget()
    with monkeypatch.context() as patch:
        patch.setattr(noted_hashes, "sha256_of", watched)
        fingerprint(folder, noted=True)
    return bool(read)


def test_what_was_noted_is_not_read_again_until_the_file_is_another(
    large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = large / "model.safetensors"
    before = fingerprint(large)
    assert read_again(large, monkeypatch)
    noted_hashes.note_hashes(large)
    assert not read_again(large, monkeypatch)
    assert fingerprint(large, noted=True) == before
    times = path.stat()
    with path.open("r+b") as file:  # Zeros and old times, as after a copy that broke off.
        file.seek(20_000)
        file.write(b"\1")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert read_again(large, monkeypatch)
    assert fingerprint(large, noted=True) != before


def test_a_copied_or_touched_file_is_read_again(
    large: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = fingerprint(large)
    noted_hashes.note_hashes(large)
    copy = tmp_path_factory.mktemp("copies") / "copy"
    shutil.copytree(large, copy)
    assert read_again(copy, monkeypatch)
    assert fingerprint(copy, noted=True) == before
    os.utime(large / "model.safetensors")
    assert read_again(large, monkeypatch)


def test_a_file_that_was_just_made_is_not_noted(
    large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(noted_hashes, "_SETTLED_NS", 10**18)
    fingerprint(large)
    noted_hashes.note_hashes(large)
    assert not (large / noted_hashes.NOTES_FILE).exists()


@pytest.mark.parametrize(
    "text",
    ["{", "[]", '{"schema_version": 1}', '{"schema_version": 1, "files": {"a": {}}}', "FORGED"],
)
def test_a_damaged_note_is_none(large: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    before = fingerprint(large)
    noted_hashes.note_hashes(large)
    path = large / noted_hashes.NOTES_FILE
    sha256 = json.loads(path.read_text())["files"]["model.safetensors"]["sha256"]
    path.write_text(path.read_text().replace(sha256, sha256[:-1]) if text == "FORGED" else text)
    assert read_again(large, monkeypatch)
    assert fingerprint(large, noted=True) == before


@pytest.mark.parametrize("text", ["owner/model", "no such folder", "", "owner/model@"])
def test_a_repository_without_a_revision_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="pin the hub repository to a revision"):
        parse_location(text)
