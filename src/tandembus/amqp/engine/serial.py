"""Serial numbers of 32 bits (RFC 1982), as AMQP counts deliveries and transfers: they wrap around."""

from __future__ import annotations

from mypy_extensions import i64


def following(number: i64) -> i64:
    return (number + 1) & 0xFFFFFFFF


def distance(later: i64, earlier: i64) -> i64:
    """How far `later` is ahead of `earlier`; negative when it is behind."""
    difference: i64 = (later - earlier) & 0xFFFFFFFF
    return difference - 0x100000000 if difference >= 0x80000000 else difference
