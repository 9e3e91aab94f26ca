"""The body of a management request, read with a clear error for everything that is missing or of the wrong type.

It comes decoded with its AMQP types: most of them do not matter here, but what is written into a message keeps its own.
"""

from __future__ import annotations

import uuid

from tandembus.amqp.encoding.encoder import encode
from tandembus.amqp.encoding.values import Array, Described, Typed
from tandembus.errors import InvalidArgument


class Body:
    def __init__(self, value: object, link_name: str | None = None) -> None:
        self.link_name = link_name
        """The link of the client's that the request is about, where it says so."""
        if value is None:
            value = {}
        if not isinstance(value, dict):
            raise InvalidArgument("The body of a management request must be a map.")
        self._entries = {plain(key): item for key, item in value.items()}

    def integer(self, key: str, least: int | None, most: int | None) -> int:
        value = plain(self._entries.get(key))
        if not isinstance(value, int) or isinstance(value, bool):
            raise InvalidArgument(f"The request needs '{key}' as an integer.")
        if (least is not None and value < least) or (most is not None and value > most):
            raise InvalidArgument(f"'{key}' is {value}; it must be from {least} to {most}.")
        return value

    def is_missing(self, key: str) -> bool:
        return self._entries.get(key) is None

    def flag(self, key: str) -> bool:
        """False where it is missing."""
        value = plain(self._entries.get(key))
        if not isinstance(value, (bool, type(None))):
            raise InvalidArgument(f"'{key}' must be true or false.")
        return value is True

    def numbers_by_fragment(self, key: str, least: int, most: int) -> dict[int, int]:
        """A map of integers; empty where it is missing."""
        found: dict[int, int] = {}
        for index, value in self._by_fragment(key).items():
            number = plain(value)
            if not isinstance(number, int) or isinstance(number, bool) or not least <= number <= most:
                raise InvalidArgument(f"'{key}' must be a map of integers from {least} to {most}.")
            found[index] = number
        return found

    def ranges(self, key: str, most: int, largest: int) -> dict[int, list[tuple[int, int]]]:
        """By fragment, an array of first and last numbers, in turn."""
        found: dict[int, list[tuple[int, int]]] = {}
        for index, value in self._by_fragment(key).items():
            items = value.items if isinstance(value, Array) else value
            if not isinstance(items, list) or len(items) % 2:
                raise InvalidArgument(f"Each value of '{key}' must be an array of first and last numbers, in turn.")
            most -= len(items) // 2
            if most < 0:
                raise InvalidArgument(f"'{key}' holds too many ranges: send them in several requests.")
            found[index] = _pairs(key, [plain(item) for item in items], largest)
        return found

    def _by_fragment(self, key: str) -> dict[int, object]:
        value = self._entries.get(key)
        if value is None:
            return {}
        entries = {plain(index): item for index, item in value.items()} if isinstance(value, dict) else {None: None}
        found = {index: item for index, item in entries.items() if isinstance(index, int) and index >= 0}
        if len(found) != len(entries):
            raise InvalidArgument(f"'{key}' must be a map by the numbers of fragments.")
        return found

    def text(self, key: str, most: int) -> str | None:
        """A string, cut where it is longer than `most` characters."""
        value = plain(self._entries.get(key))
        if value is None:
            return None
        if not isinstance(value, str):
            raise InvalidArgument(f"'{key}' must be a string.")
        return value[:most]

    def is_text(self, key: str) -> bool:
        """A string, or nothing."""
        value = plain(self._entries.get(key))
        return value is None or isinstance(value, str)

    def value(self, key: str) -> object:
        """With the type that it came with."""
        return self._entries.get(key)

    def session_id(self, most: int) -> str | None:
        value = plain(self._entries.get("session-id"))
        if value is None:
            return None
        if not isinstance(value, str) or len(value) > most:
            raise InvalidArgument(f"'session-id' must be a string of at most {most} characters.")
        return value

    def binary(self, key: str) -> bytes | None:
        value = plain(self._entries.get(key))
        if value is not None and not isinstance(value, bytes):
            raise InvalidArgument(f"'{key}' must be binary, or null.")
        return value

    def string(self, key: str) -> str | None:
        """A string of any length: whoever asks for it refuses what is too long."""
        value = plain(self._entries.get(key))
        if value is not None and not isinstance(value, str):
            raise InvalidArgument(f"'{key}' must be a string.")
        return value

    def map(self, key: str) -> Body | None:
        """A map within the map."""
        value = self._entries.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise InvalidArgument(f"'{key}' must be a map.")
        return Body(value)

    def items(self) -> list[tuple[str, object]]:
        """Everything there is, with the types that it came with."""
        if not all(isinstance(key, str) for key in self._entries):
            raise InvalidArgument("The names in a map must be strings.")
        return [(str(key), value) for key, value in self._entries.items()]

    def _items(self, key: str, most: int) -> list[object]:
        value = self._entries.get(key)
        items = value.items if isinstance(value, Array) else value
        if not isinstance(items, list) or not items:
            raise InvalidArgument(f"The request needs '{key}' as a non-empty array.")
        if len(items) > most:
            raise InvalidArgument(f"'{key}' may hold at most {most} entries.")
        return [plain(item) for item in items]

    def integers(self, key: str, most: int) -> list[int]:
        items = self._items(key, most)
        numbers = [item for item in items if isinstance(item, int) and not isinstance(item, bool)]
        if len(numbers) != len(items):
            raise InvalidArgument(f"'{key}' must be an array of integers.")
        if len(set(numbers)) != len(numbers):
            raise InvalidArgument(f"A number stands twice in '{key}'.")
        return numbers

    def tokens(self, key: str, most: int) -> list[bytes]:
        """Lock tokens: uuids in ordinary order here, in .NET's byte order as delivery tags."""
        items = self._items(key, most)
        tokens = [item.bytes_le for item in items if isinstance(item, uuid.UUID)]
        if len(tokens) != len(items):
            raise InvalidArgument(f"'{key}' must be an array of uuids.")
        return tokens

    def payloads(self, key: str, most: int) -> list[bytes]:
        """Encoded messages, each in a map under `message`."""
        payloads: list[bytes] = []
        for item in self._items(key, most):
            payload = item.get("message") if isinstance(item, dict) else None
            if not isinstance(payload, bytes):
                raise InvalidArgument(f"Each entry of '{key}' must be a map with the encoded 'message'.")
            payloads.append(payload)
        return payloads

    def changes(self, key: str, most_bytes: int) -> dict[str, object] | None:
        """Properties to be set on a message, with the types that they came with."""
        value = self._entries.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise InvalidArgument(f"'{key}' must be a map.")
        if len(encode(value)) > most_bytes:
            raise InvalidArgument(f"'{key}' may hold at most {most_bytes} bytes.")
        return {str(plain(name)): item for name, item in value.items()}


def _pairs(key: str, items: list[object], largest: int) -> list[tuple[int, int]]:
    pairs: list[tuple[int, int]] = []
    for first, last in zip(items[::2], items[1::2], strict=True):
        if not isinstance(first, int) or not isinstance(last, int) or not 0 <= first <= last <= largest:
            raise InvalidArgument(
                f"'{key}' must hold ranges of numbers from 0 to {largest}, not {first!r} to {last!r}."
            )
        pairs.append((first, last))
    return pairs


def plain(value: object) -> object:
    return value.value if isinstance(value, Typed | Described) else value
