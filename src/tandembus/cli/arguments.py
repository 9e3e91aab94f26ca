"""What people type: names of entities, durations, moments, typed properties; the same forms in every command.

`target` looks at the names of arguments to know which entity a command is about: `entity`, or `topic` with
`subscription`. What only some commands need is loaded when it is used: `up` and `serve` start fast.
"""

from __future__ import annotations

import math
import re
import sys
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import reduce
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from tandembus.clock import SystemClock
from tandembus.errors import InvalidArgument, MalformedData
from tandembus.printable import printable

T = TypeVar("T", bound=Callable[..., Any])
STANDARD_INPUT: Final = "-"
SUB_QUEUES: Final = ("dead-letter", "transfer-dead-letter")
PROPERTY_TYPES: Final = ("string", "int", "long", "double", "bool", "uuid", "timestamp")
PROPERTY: Final = "NAME[:TYPE]=VALUE"
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0, "": 1.0}
_SHORT: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w|)")
_BOOLEANS: Final = {"true": True, "false": False}


def stacked(*options: Callable[[Any], Any]) -> Callable[[T], T]:
    """Several options as one decorator, in the order in which help lists them."""
    return lambda command: reduce(lambda decorated, option: option(decorated), reversed(options), command)


def checked(check: Callable[[str], object]) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Makes a callback that refuses what cannot be a name; how long a name may be, the service decides."""

    def callback(_: click.Context, __: click.Parameter, name: str | None) -> str | None:
        if name is not None:
            try:
                check(name)
            except InvalidArgument as error:
                raise click.BadParameter(printable(str(error))) from None
        return name

    return callback


def _check_name(name: str) -> None:
    from tandembus.descriptions import validate_name
    from tandembus.limits import Limits

    validate_name(name, replace(Limits(), max_name_length=max(1, len(name))))


def _check_subscription(name: str) -> None:
    from tandembus.descriptions import validate_subscription_name

    validate_subscription_name(name)


def _check_rule(name: str) -> None:
    from tandembus.descriptions import validate_rule_name

    validate_rule_name(name)


def _check_path(path: str) -> None:
    """A queue or topic, or a subscription by its whole path."""
    segments = [each for each in path.strip("/").split("/") if each.lower() != "subscriptions"]
    _check_name("/".join(segments))


checked_name: Final = checked(_check_name)


def checked_path(context: click.Context, parameter: click.Parameter, path: str | None) -> str | None:
    """As links know it; a slash at the beginning means nothing."""
    name: str | None = checked(_check_path)(context, parameter, path)
    return None if name is None else name.strip("/")


named_entity: Final = click.argument("entity", metavar="NAME", callback=checked_name)
"""A queue or topic that is administered."""
entity_argument: Final = click.argument("entity", callback=checked_path)
"""Something to send to or receive from."""
topic_argument: Final = click.argument("topic", callback=checked_name)
named_subscription: Final = stacked(
    topic_argument, click.argument("subscription", metavar="NAME", callback=checked(_check_subscription))
)
subscription_arguments: Final = stacked(
    topic_argument, click.argument("subscription", callback=checked(_check_subscription))
)
rule_name: Final = click.argument("name", callback=checked(_check_rule))


def sub_queue_option(help: str, default: str | None = None) -> Callable[[T], T]:
    choice = click.Choice(SUB_QUEUES)
    return click.option("--sub-queue", type=choice, default=default, show_default=default is not None, help=help)


def number(
    name: str, help: str, default: int | None = None, field: str | None = None, most: int | None = None, **more: Any
) -> Callable[[T], T]:
    """An option that is a number from 1 on."""
    if default is not None:
        more |= {"default": default, "show_default": True}
    names = (name,) if field is None else (name, field)
    return click.option(*names, type=click.IntRange(1, most), metavar="N", help=help, **more)


def limit_option(default: int | None, shown_default: str = "") -> Callable[[T], T]:
    more = f"  [default: {shown_default}]" if shown_default else ""
    return number("--max", f"How many at most.{more}", default, "limit")


def input_option(noun: str) -> Callable[[T], T]:
    path = click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path)
    return click.option("--file", type=path, help=f"Read the {noun} from here.")


def certificate(_: click.Context, __: click.Parameter, path: Path | None) -> str | None:
    """The callback of options that name a file of certificates to trust."""
    if path is None:
        return None
    import ssl

    try:
        ssl.create_default_context(cafile=str(path))
    except ssl.SSLError:
        raise click.BadParameter(f"{path} holds no certificate in PEM form") from None
    return str(path)


def ca_option(name: str = "--ca", whose: str = "the connection string asks") -> Callable[[T], T]:
    path = click.Path(exists=True, dir_okay=False, path_type=Path)
    help = f"CA certificate to trust when {whose} for TLS (`tandembus ca` prints its path)."
    return click.option(name, f"{name[2:].replace('-', '_')}_path", type=path, callback=certificate, help=help)


def content_of(noun: str, text: str | None, file: Path | None) -> bytes:
    """What an argument says, a file holds, or standard input brings: for `-`, and where neither is given."""
    if text is not None and file is not None:
        raise click.UsageError(f"Give the {noun} as an argument or as --file, not both.")
    if text is not None and text != STANDARD_INPUT:
        return text.encode()
    if file is not None and str(file) != STANDARD_INPUT:
        return file.read_bytes()
    if text is None and file is None and sys.stdin.isatty():
        raise click.UsageError(f"Where is the {noun}? Give it as an argument, as --file, or pipe it in.")
    return sys.stdin.buffer.read()


def duration(text: str) -> float:
    """Seconds, from `30`, `90s`, `5m`, `2h`, `14d`, `never` or ISO 8601 (`PT1M`)."""
    if text.strip().lower() == "never":
        return math.inf
    seconds = _short_duration(text)
    if seconds is not None:
        return seconds
    from tandembus.client.durations import duration_of

    try:
        return duration_of(text.upper())
    except MalformedData:
        raise click.BadParameter(
            f"{text!r} is no duration: write 30s, 5m, 2h, 14d, never, or ISO 8601 such as PT1M"
        ) from None


def moment(text: str) -> float:
    """Wall time, from a duration from now (`10m`) or ISO 8601 (`2030-01-31T08:00:00Z`; no zone: local)."""
    return _moment(text, 1.0, "a duration from now (10m)")


def past_moment(text: str) -> float:
    """Wall time, from a duration until now (`1h`: an hour ago) or ISO 8601."""
    return _moment(text, -1.0, "a duration until now (1h: an hour ago)")


def _moment(text: str, sign: float, form: str) -> float:
    seconds = _short_duration(text)
    if seconds is not None:
        return SystemClock().now() + sign * seconds
    try:
        return _iso_moment(text)
    except (ValueError, OverflowError):
        raise click.BadParameter(f"{text!r} is no time: write {form} or 2030-01-31T08:00:00Z") from None


def typed_property(text: str) -> tuple[str, object]:
    """An application property: `name=value`, a string, or `name:type=value` for any other AMQP type."""
    name_and_type, equals, value = text.partition("=")
    name, _, kind = name_and_type.partition(":")
    if not equals or not name:
        raise click.BadParameter(f"{text!r} is not of the form name=value")
    try:
        return name, _property_value(kind or "string", value)
    except (ValueError, KeyError, OverflowError):
        types = ", ".join(PROPERTY_TYPES)
        raise click.BadParameter(f"{value!r} is not a value of type {kind!r}; types: {types}") from None


def _property_value(kind: str, text: str) -> object:
    from tandembus.amqp.encoding.values import int_, timestamp

    match kind:
        case "string":
            return text
        case "int":
            return int_(_integer(text, 32))
        case "long":
            return _integer(text, 64)
        case "double":
            return float(text)
        case "bool":
            return _BOOLEANS[text.lower()]
        case "uuid":
            return uuid.UUID(text)
        case "timestamp":
            return timestamp(round(_iso_moment(text) * 1000))
        case _:
            raise KeyError(kind)


def _integer(text: str, bits: int) -> int:
    value = int(text)
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise ValueError(text)
    return value


def _short_duration(text: str) -> float | None:
    match = _SHORT.fullmatch(text.strip())
    return None if match is None else float(match[1]) * _UNITS[match[2]]


def _iso_moment(text: str) -> float:
    return datetime.fromisoformat(text.strip().replace("Z", "+00:00")).timestamp()
