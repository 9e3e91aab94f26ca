"""`/metrics`: where Prometheus looks."""

from __future__ import annotations

from typing import Final

from aiohttp import web

METRICS_PATH: Final = "metrics"


def is_scrape(request: web.Request, path: str) -> bool:
    """An entity may be called so, too; whoever administers one names the version of the protocol."""
    return request.method == "GET" and path.lower() == METRICS_PATH and "api-version" not in request.query
