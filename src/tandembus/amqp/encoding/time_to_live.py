"""A time to live beyond 49 days does not fit the header's field: the difference of two times tells it then, as the
SDKs write it and services read it."""

from __future__ import annotations

from typing import Final

MAX_HEADER_TTL_MS: Final = 0xFFFFFFFF
LAST_MS: Final = 253_402_300_799_000
"""The end of the year 9999: no client knows later times."""


def header_ttl(ttl_ms: int) -> int:
    return max(0, min(ttl_ms, MAX_HEADER_TTL_MS))


def times_of(ttl_ms: int | None, now_s: float) -> tuple[int | None, int | None]:
    """`creation-time` and `absolute-expiry-time`; both None where the header says it all."""
    if ttl_ms is None or ttl_ms < MAX_HEADER_TTL_MS:
        return None, None
    created_at = int(now_s * 1000)
    return created_at, min(created_at + ttl_ms, LAST_MS)


def ttl_of(header_ms: int | None, created_at: object, expires_at: object) -> int | None:
    """The time to live of a message, in milliseconds."""
    if header_ms == MAX_HEADER_TTL_MS and isinstance(created_at, int) and isinstance(expires_at, int):
        return max(header_ms, min(expires_at, LAST_MS) - created_at)
    return header_ms
