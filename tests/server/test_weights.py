"""Weights from a folder or from the hub, the hub being a local server that speaks its protocol."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pytest

from server.errors import ConfigurationError
from server.weights import WeightsLocation, parse_location

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
        elif self.path.startswith(f"/api/models/owner/model/revision/{COMMIT}") or (
            self.path.startswith(f"/api/models/owner/model/tree/{COMMIT}")
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
        "try: print(local_folder(parse_location(sys.argv[1]), CODEC_FILES))\n"
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


@pytest.mark.parametrize("text", ["owner/model", "no such folder", "", "owner/model@"])
def test_a_repository_without_a_revision_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="pin the hub repository to a revision"):
        parse_location(text)
