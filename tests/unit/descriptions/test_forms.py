"""What forms are made of."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tandembus.descriptions import EntityKind, QueueDescription
from tandembus.descriptions.changes import check_update
from tandembus.descriptions.entities import CLASSES
from tandembus.descriptions.forms import forms_of, read_settings
from tandembus.errors import InvalidArgument
from tandembus.limits import Limits
from tests.covers import covers


@covers("B4")
@pytest.mark.parametrize("kind", EntityKind)
def test_defaults_and_the_ends_of_ranges_are_taken(kind: EntityKind) -> None:
    limits = Limits()
    names = {"topic_name": "t", "name": "n"} if kind is EntityKind.SUBSCRIPTION else {"name": "n"}
    for field in forms_of(kind, limits):
        values = [field["default"], *cast(list[object], field["choices"] or [])]
        if field["nullable"]:
            values.append(None)
        if field["type"] in ("int", "duration"):
            values += [value for value in (field["min"], field["max"]) if value is not None]
        for value in values:
            settings = read_settings(kind, {cast(str, field["name"]): value})
            cast(Any, CLASSES[kind])(**names, **settings).validated(limits)


@covers("B4")
def test_beyond_the_ends_of_ranges_nothing_is_taken() -> None:
    limits = Limits(max_message_size_bytes=2 * 1024 * 1024)
    for field in forms_of(EntityKind.QUEUE, limits):
        if field["type"] not in ("int", "duration"):
            continue
        least, most = cast(float, field["min"]), field["max"]
        beyond = [least - 0.001 if field["type"] == "duration" else least - 1]
        beyond += [cast(float, most) + 1] if most is not None else []
        for value in beyond:
            settings = read_settings(EntityKind.QUEUE, {cast(str, field["name"]): value})
            with pytest.raises(InvalidArgument):
                QueueDescription("n", **settings).validated(limits)


@covers("B4")
def test_what_is_said_to_be_fixed_is() -> None:
    for field in forms_of(EntityKind.QUEUE, Limits()):
        name = cast(str, field["name"])
        if field["type"] != "bool" or name == "is_anonymous_accessible":
            continue
        changed = QueueDescription("n", **{name: not field["default"]})  # type: ignore[arg-type]
        is_refused = False
        try:
            check_update(QueueDescription("n"), changed)
        except InvalidArgument:
            is_refused = True
        assert is_refused == field["is_fixed"], name
