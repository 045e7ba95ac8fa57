"""The page's files, which anybody may have: it has to be there to be given a token."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from starlette.responses import Response

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from fastapi import FastAPI

_PAGE = Path(__file__).parent / "page"
PAGE_FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/player.js": ("player.js", "text/javascript; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
_PAGE_HEADERS = {
    # Nothing from anywhere else, nothing inline; `ws:` because Safari's 'self' leaves sockets out.
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self' ws: wss:; media-src 'self' blob:; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}


def add_page(app: FastAPI) -> None:
    """Add a route for each of the page's files."""
    for path, (name, media) in PAGE_FILES.items():
        app.add_api_route(path, _file(name, media), include_in_schema=False)


def _file(name: str, media: str) -> Callable[[], Awaitable[Response]]:
    content = (_PAGE / name).read_bytes()

    async def page() -> Response:
        return Response(content, media_type=media, headers=_PAGE_HEADERS)

    return page
