"""Settings as the JSON API has them: what forms show of each, and how it is read from a request."""

from __future__ import annotations

import dataclasses
import re
from typing import Any, Final

from tandembus.descriptions.entities import CLASSES, EntityDescription, EntityKind
from tandembus.descriptions.settings import BY_NAME, EntityStatus, Kind, Setting, choices_of, defaults_of, settings_of
from tandembus.errors import InvalidArgument
from tandembus.limits import Limits

MAX_INT: Final = 2**53
_UNWRITABLE: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML, in which the SDKs get a text, has no place for."""
_FORM_TYPES: Final = {Kind.TARGET: "text", Kind.STATUS: "choice"}
_WANTED: Final = {Kind.BOOLEAN: "true or false", Kind.INTEGER: "a whole number", Kind.SIZE: "a whole number"}


def forms_of(kind: EntityKind, limits: Limits) -> list[dict[str, object]]:
    """A document for each setting, in the order in which forms show them."""
    defaults = defaults_of(CLASSES[kind])
    return [_form(setting, defaults[setting.name], limits) for setting in _shown(kind)]


def _shown(kind: EntityKind) -> list[Setting]:
    return [setting for setting in settings_of(CLASSES[kind]) if setting.label]


def _form(setting: Setting, default: object, limits: Limits) -> dict[str, object]:
    least, most = setting.range(limits) if setting.range is not None else (None, None)
    return {
        "name": setting.name,
        "label": setting.label,
        "help": setting.help,
        "type": _FORM_TYPES.get(setting.kind, setting.kind.value),
        "default": json_value(default),
        "choices": choices_of(setting, limits),
        "min": least,
        "max": most,
        "is_fixed": setting.is_fixed,
        "nullable": default is None,
    }


def json_value(value: object) -> object:
    return value.value if isinstance(value, EntityStatus) else value


def shown_settings(description: EntityDescription) -> dict[str, object]:
    """All fields of a description but its policies, which hold keys."""
    names = [field.name for field in dataclasses.fields(description) if field.name != "authorization_rules"]
    return {name: json_value(getattr(description, name)) for name in names}


def read_settings(kind: EntityKind, document: object) -> dict[str, Any]:
    """The settings that a request names. Whether they are in their range is for the description to check."""
    if not isinstance(document, dict):
        raise InvalidArgument("'settings' must be a JSON object.")
    known = [setting.name for setting in _shown(kind)]
    unknown = sorted(set(document) - set(known))
    if unknown:
        raise InvalidArgument(f"A {kind.value} has no setting '{unknown[0][:64]}'; it has {', '.join(known)}.")
    defaults = defaults_of(CLASSES[kind])
    return {name: _read(BY_NAME[name], value, defaults[name] is None) for name, value in document.items()}


def _read(setting: Setting, value: object, is_nullable: bool) -> object:
    if value is None and is_nullable:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MAX_INT
    match setting.kind:
        case Kind.STATUS:
            return read_status(value, "'status'")
        case Kind.BOOLEAN if isinstance(value, bool):
            return value
        case Kind.INTEGER | Kind.SIZE if is_number and isinstance(value, int):
            return value
        case Kind.DURATION if is_number and isinstance(value, int | float):
            return float(value)
        case Kind.TEXT | Kind.TARGET if isinstance(value, str):
            if _UNWRITABLE.search(value) is not None:
                raise InvalidArgument(f"'{setting.name}' contains characters that no text may have.")
            return value
    wanted = "seconds" if setting.kind is Kind.DURATION else _WANTED.get(setting.kind, "a text")
    raise InvalidArgument(f"'{setting.name}' must be {wanted}{' or null' * is_nullable}.")


def read_status(value: object, name: str) -> EntityStatus:
    words = {status.value: status for status in EntityStatus}
    if not isinstance(value, str) or value not in words:
        raise InvalidArgument(f"{name} must be one of {', '.join(words)}.")
    return words[value]
