"""Which sessions have reserved messages: nobody can accept them before those are settled or released.

By the hash that columns know them by, so no body is read for it. Two sessions of one hash wait for each other.
"""

from __future__ import annotations

from typing import final


@final
class ReservedSessions:
    def __init__(self) -> None:
        self.is_known: bool = True
        """False while it is still being read, after the fragment was opened: until then any session may be one."""
        self._hashes: dict[int, bytes] = {}
        self._counts: dict[bytes, int] = {}
        self._owners: dict[bytes, str] = {}

    def has(self, hash_of_id: bytes) -> bool:
        return not self.is_known or hash_of_id in self._counts

    def is_anothers(self, hash_of_id: bytes, owner: str) -> bool:
        """A session is one owner's as long as it has messages of it: two would not keep its order."""
        return self._owners.get(hash_of_id, owner) != owner

    def add(self, number: int, hash_of_id: bytes, owner: str) -> None:
        if number not in self._hashes:
            self._hashes[number] = hash_of_id
            self._owners[hash_of_id] = owner
            self._counts[hash_of_id] = self._counts.get(hash_of_id, 0) + 1

    def remove(self, number: int) -> bytes | None:
        """The hash of its session; None where it was not among them."""
        hash_of_id = self._hashes.pop(number, None)
        if hash_of_id is None:
            return None
        left = self._counts[hash_of_id] - 1
        if left > 0:
            self._counts[hash_of_id] = left
        else:
            del self._counts[hash_of_id]
            del self._owners[hash_of_id]
        return hash_of_id
