"""Things by their name, listed in its order a page at a time."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Generic, TypeVar, final

T = TypeVar("T")


@final
class Named(Generic[T]):
    """A page costs what it holds, however many there are: 10,000 entities are listed 100 at a time."""

    __slots__ = ("_by_key", "_keys")

    def __init__(self) -> None:
        self._by_key: dict[str, T] = {}
        self._keys: list[str] = []

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: str) -> bool:
        return key in self._by_key

    def get(self, key: str) -> T | None:
        return self._by_key.get(key)

    def put(self, key: str, value: T) -> None:
        if key not in self._by_key:
            insort(self._keys, key)
        self._by_key[key] = value

    def pop(self, key: str) -> T | None:
        value = self._by_key.pop(key, None)
        if value is not None:
            del self._keys[bisect_left(self._keys, key)]
        return value

    def keys(self, part: str = "") -> list[str]:
        """Those with this part in them, in order: to choose a page from without touching what they name."""
        return [key for key in self._keys if part in key] if part else list(self._keys)

    def page(self, skip: int = 0, top: int | None = None) -> list[T]:
        keys = self._keys[skip:] if top is None else self._keys[skip : skip + top]
        return [self._by_key[key] for key in keys]
