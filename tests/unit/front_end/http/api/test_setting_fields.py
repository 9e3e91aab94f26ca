"""What forms are made of."""

from __future__ import annotations

import dataclasses
from typing import Any, cast

import pytest

from tandembus.descriptions import EntityKind, QueueDescription
from tandembus.descriptions.changes import check_update
from tandembus.errors import InvalidArgument
from tandembus.front_end.http.api.setting_fields import (
    FIELDS,
    KINDS,
    LEFT_OUT,
    field_documents,
    names_of,
    read_settings,
)
from tandembus.limits import Limits
from tests.covers import covers
from tests.unit.front_end.http.api.browser import Browser, document_of


@covers("B4")
def test_every_field_of_a_description_is_a_setting_or_left_out_on_purpose() -> None:
    for kind, description in KINDS.items():
        fields = {one.name for one in dataclasses.fields(description)}
        assert set(names_of(kind)) == fields - LEFT_OUT
    assert {name for kind in KINDS for name in names_of(kind)} == set(FIELDS)


@covers("B4")
@pytest.mark.parametrize("kind", KINDS)
def test_defaults_and_the_ends_of_ranges_are_taken(kind: EntityKind) -> None:
    limits = Limits()
    names = {"topic_name": "t", "name": "n"} if kind is EntityKind.SUBSCRIPTION else {"name": "n"}
    for field in field_documents(kind, limits):
        values = [field["default"], *cast(list[object], field["choices"] or [])]
        if field["nullable"]:
            values.append(None)
        if field["type"] in ("int", "duration"):
            values += [value for value in (field["min"], field["max"]) if value is not None]
        for value in values:
            settings = read_settings(kind, {cast(str, field["name"]): value})
            cast(Any, KINDS[kind])(**names, **settings).validated(limits)


@covers("B4")
def test_beyond_the_ends_of_ranges_nothing_is_taken() -> None:
    limits = Limits(max_message_size_bytes=2 * 1024 * 1024)
    for field in field_documents(EntityKind.QUEUE, limits):
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
    for field in field_documents(EntityKind.QUEUE, Limits()):
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


@covers("B4")
async def test_everybody_who_is_signed_in_gets_them(browser: Browser) -> None:
    assert (await browser.ask("GET", "settings")).status == 401
    await browser.sign_in("sender", "c2VuZA==")
    document = document_of(await browser.ask("GET", "settings"))
    assert set(document) == {"queue", "topic", "subscription"}
    (size,) = [one for one in cast(list[Any], document["queue"]) if one["name"] == "max_size_in_megabytes"]
    assert (size["choices"], size["default"], size["nullable"]) == ([1024, 2048, 3072, 4096, 5120], 1024, False)
