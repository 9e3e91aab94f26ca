"""A JSON document in which every value knows where it stands, so that a complaint can say so."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tandembus.config import MAX_FILE_BYTES, ConfigurationError
from tandembus.errors import InvalidArgument
from tandembus.front_end.http.values import parse_duration

_COMMENT: Final = re.compile(r"\s*(//|/\*|#)")
_TRAILING_COMMA: Final = re.compile(r",\s*\Z")
_KIND_OF: Final = {dict: "an object", list: "a list", str: "text", bool: "true or false", int: "a whole number"}


class _Object(dict[str, object]):
    """An object that remembers which of its keys came twice."""

    repeated: str | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """A value, and the way to it: `UserConfig.Namespaces[0].Queues[2].Properties.LockDuration`."""

    file: str
    path: str
    value: object

    def fault(self, reason: str) -> ConfigurationError:
        where = f"{self.file}: {self.path}" if self.path else self.file
        return ConfigurationError(f"{where}: {reason}")

    def members(self, known: Collection[str], required: Collection[str] = ()) -> dict[str, Place]:
        """An object's values by their keys; one that is not known is a mistake, not something to skip."""
        value = self._of_kind(dict)
        assert isinstance(value, _Object)
        if value.repeated is not None:
            raise self.fault(f"the key {value.repeated!r} is there twice; remove one")
        for key in value:
            if key not in known:
                raise self.member(key).unknown(key, known)
        for key in required:
            if key not in value:
                raise self.fault(f"{key!r} is missing; add it")
        return {key: self.member(key) for key in value}

    def unknown(self, key: str, known: Collection[str]) -> ConfigurationError:
        return self.fault(_not_known(key, known))

    def all_members(self) -> dict[str, Place]:
        """Of an object whose keys are the user's own."""
        value = self._of_kind(dict)
        assert isinstance(value, _Object)
        return self.members(value)

    def member(self, key: str) -> Place:
        value = self.value.get(key) if isinstance(self.value, dict) else None
        return Place(self.file, f"{self.path}.{key}" if self.path else key, value)

    def blamed(self, text: str) -> Place:
        """The property of this entity that a refusal names, if it has one; else the entity."""
        properties = self.member("Properties")
        for key in properties.value if isinstance(properties.value, dict) else ():
            if re.search(rf"\b{re.escape(key)}\b", text):
                return properties.member(key)
        return self

    def items(self) -> list[Place]:
        value = self._of_kind(list)
        assert isinstance(value, list)
        return [Place(self.file, f"{self.path}[{at}]", item) for at, item in enumerate(value)]

    def text(self) -> str:
        return str(self._of_kind(str))

    def boolean(self) -> bool:
        return bool(self._of_kind(bool))

    def whole_number(self) -> int:
        value = self._of_kind(int)
        assert isinstance(value, int)
        return value

    def duration_s(self) -> float | None:
        """None is never."""
        try:
            return parse_duration(self.text(), "the value")
        except InvalidArgument as error:
            raise self.fault(str(error)) from None

    def one_of(self, *choices: str) -> str:
        if self.value not in choices:
            raise self.fault(f"{_shown(self.value)} is not one of {', '.join(choices)}")
        return str(self.value)

    def _of_kind(self, kind: type) -> object:
        is_right = isinstance(self.value, kind) and (kind is bool or not isinstance(self.value, bool))
        if not is_right:
            raise self.fault(f"{_shown(self.value)} is not {_KIND_OF[kind]}")
        return self.value


def read_json(path: Path) -> Place:
    """The whole document, or ConfigurationError with the line that is not JSON."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror or error}") from None
    if len(raw) > MAX_FILE_BYTES:
        raise ConfigurationError(f"{path}: larger than {MAX_FILE_BYTES} bytes, so hardly a configuration file")
    try:
        text = raw.decode("utf-8-sig")
        value = json.loads(text, object_pairs_hook=_object, parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: not UTF-8 text: {error.reason} at byte {error.start}") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise ConfigurationError(f"{path}: {where}: not JSON: {error.msg}{_hint(error.doc, error.pos)}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path}: not JSON: {error}") from None
    return Place(str(path), "", value)


def _object(pairs: list[tuple[str, object]]) -> _Object:
    found = _Object()
    for key, value in pairs:
        if key in found:
            found.repeated = key
        found[key] = value
    return found


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not a value of JSON")


def _hint(text: str, at: int) -> str:
    """For what people write although JSON has no word for it."""
    if _COMMENT.match(text, at):
        return " (JSON has no comments: remove it)"
    if _TRAILING_COMMA.search(text[:at]):
        return " (JSON allows no comma behind the last entry: remove it)"
    return ""


def _not_known(key: str, known: Collection[str]) -> str:
    folded = {one.lower(): one for one in known}
    close = difflib.get_close_matches(key.lower(), folded, 1)
    if close:
        return f"this key is not known; did you mean {folded[close[0]]!r}?"
    return f"this key is not known; remove it. Known here: {', '.join(known)}"


def _shown(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    shown = json.dumps(value, ensure_ascii=False)
    return shown if len(shown) <= 80 else shown[:77] + "..."
