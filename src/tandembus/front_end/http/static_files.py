"""The dashboard's own files, as they stand in the package. They hold no secrets, so everybody gets them.

All of them are read at the start: nothing that a request says ever becomes a path on the disk.
"""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path
from typing import Final

from aiohttp import web

from tandembus.front_end.http.request import HttpRefusal, allow

FOLDER: Final = Path(__file__).parents[2] / "dashboard"
PREFIX: Final = "$dashboard/"
INDEX: Final = "index.html"
CONTENT_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".ico": "image/x-icon",
    ".png": "image/png",
    ".json": "application/json",
    ".woff2": "font/woff2",
    ".txt": "text/plain; charset=utf-8",
}
"""Files of other kinds in the folder are not served."""
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
    "Vary": "Accept-Encoding",
}


class StaticFile:
    def __init__(self, content: bytes, content_type: str) -> None:
        self._content = content
        self._content_type = content_type
        self._compressed: bytes | None = None
        # A weak one: it is the same for both encodings.
        self._etag = f'W/"{hashlib.sha256(content).hexdigest()[:16]}"'

    def answer(self, request: web.Request) -> web.Response:
        headers = {**HEADERS, "ETag": self._etag}
        if self._etag in [tag.strip() for tag in request.headers.get("If-None-Match", "").split(",")]:
            return web.Response(status=304, headers=headers)
        headers["Content-Type"] = self._content_type
        if not _accepts_gzip(request):
            return web.Response(body=self._content, headers=headers)
        headers["Content-Encoding"] = "gzip"
        return web.Response(body=self._gzipped(), headers=headers)

    def _gzipped(self) -> bytes:
        if self._compressed is None:
            self._compressed = gzip.compress(self._content, mtime=0)
        return self._compressed


class StaticFiles:
    def __init__(self, folder: Path = FOLDER) -> None:
        self._files = {
            path.relative_to(folder).as_posix(): StaticFile(path.read_bytes(), CONTENT_TYPES[path.suffix])
            for path in sorted(folder.rglob("*"))
            if path.is_file() and path.suffix in CONTENT_TYPES
        }

    @property
    def names(self) -> list[str]:
        return list(self._files)

    def answer(self, request: web.Request, path: str) -> web.Response | None:
        """From a decoded path; None where a request is about something else. Who shows a token means the namespace
        itself by `/`, not a page."""
        if not path:
            if "Authorization" in request.headers or request.method not in ("GET", "HEAD"):
                return None
            return self._file(INDEX).answer(request)
        if path[: len(PREFIX)].lower() != PREFIX:
            return None
        allow(request, "GET", "HEAD")
        return self._file(path[len(PREFIX) :]).answer(request)

    def _file(self, name: str) -> StaticFile:
        file = self._files.get(name)
        if file is None:
            raise HttpRefusal(404, "The dashboard has no such file.")
        return file


def _accepts_gzip(request: web.Request) -> bool:
    wishes = [wish.strip().lower() for wish in request.headers.get("Accept-Encoding", "").split(",")]
    return any(wish == "gzip" or (wish.startswith("gzip;") and not wish.endswith("q=0")) for wish in wishes)
