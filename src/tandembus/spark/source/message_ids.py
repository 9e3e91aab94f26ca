"""Message ids for rows that have none: the same row always gets the same, so that a second try is a duplicate."""

from __future__ import annotations

import hashlib
from typing import Final

PREFIX: Final = "spark-"
DIGEST_BYTES: Final = 16
REMEMBERED_BYTES: Final = 8
REMEMBERED: Final = 1_000_000
"""So many rows back, equal ones of one message are told apart: about 90 bytes each. With fewer, far ones
would be taken for duplicates."""


class IdMaker:
    """Ids of the rows that one task writes.

    A row that was read from an entity is known by its place there and its content, wherever it is computed; a row with
    key columns by these; any other by its content and its place in the task, which Spark computes again in the same
    order.
    """

    def __init__(self, scope: str) -> None:
        """`scope` tells this task from others: query, batch and partition."""
        self._scope: Final = scope.encode()
        self._turns: Final[dict[bytes, int]] = {}

    def from_origin(self, destination: str, origin: tuple[object, ...], fields: tuple[object, ...], body: bytes) -> str:
        """Equal rows that came of one message are told apart by their turn, whatever stands between them."""
        name = repr((destination, origin, fields)).encode()
        known = hashlib.blake2b(name + body, digest_size=REMEMBERED_BYTES).digest()
        turn = self._turns.pop(known, -1) + 1
        self._turns[known] = turn
        if len(self._turns) > REMEMBERED:
            del self._turns[next(iter(self._turns))]
        return _id_of(b"origin", name, body, str(turn).encode())

    def from_keys(self, destination: str, keys: tuple[object, ...]) -> str:
        return _id_of(b"keys", repr((destination, *keys)).encode())

    def from_place(self, destination: str, place: int, fields: tuple[object, ...], body: bytes) -> str:
        return _id_of(b"place", self._scope, repr((destination, place, *fields)).encode(), body)


def _id_of(*parts: bytes) -> str:
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for part in parts:
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return PREFIX + digest.hexdigest()
