"""An API server of Kubernetes that takes jobs and starts none: what a launcher sends is kept."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path


@dataclass(frozen=True)
class JobServer:
    """Where it listens, and the jobs that were sent to it, as JSON, by their path."""

    address: str = ""
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])

    def write_kubeconfig(self, path: Path) -> None:
        """A kubeconfig that leads to it."""
        cluster = {"name": "here", "cluster": {"server": self.address}}
        context = {"name": "here", "context": {"cluster": "here", "user": "nobody"}}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "here",
            "clusters": [cluster],
            "contexts": [context],
            "users": [{"name": "nobody", "user": {"token": "none"}}],
        }
        path.write_text(yaml.safe_dump(config), encoding="utf-8")


@contextmanager
def job_server() -> Generator[JobServer]:
    """A server on a free port of this machine, for as long as the context."""
    jobs: dict[str, dict[str, Any]] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            jobs[f"{self.path.partition('?')[0]}/{body['metadata']['name']}"] = body
            self._answer(201, body)

        def do_GET(self) -> None:
            job = jobs.get(self.path.partition("?")[0])
            if job is None:
                self._answer(404, {"kind": "Status", "status": "Failure", "code": 404})
            else:  # As of a pod that runs.
                self._answer(200, {**job, "status": {"active": 1}})

        def log_message(self, format: str, *args: object) -> None:
            pass

        def _answer(self, code: int, value: Any) -> None:
            body = json.dumps(value).encode()
            self.send_response(code)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield JobServer(f"http://127.0.0.1:{server.server_port}", jobs)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
