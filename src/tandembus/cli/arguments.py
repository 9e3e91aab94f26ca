"""Arguments and options that name things: entities, subscriptions, sub-queues. The same words in every command.

`target` looks at their names to know which entity a command is about: `entity`, or `topic` with `subscription`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, TypeVar

import click

from tandembus.cli.printable import printable
from tandembus.client import SubQueue
from tandembus.descriptions import validate_name, validate_rule_name, validate_subscription_name
from tandembus.errors import InvalidArgument
from tandembus.limits import Limits

T = TypeVar("T", bound=Callable[..., Any])


def _checked(check: Callable[[str], None]) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Refuses what cannot be a name before anybody is asked; how long it may be is for the service to say."""

    def callback(_: click.Context, __: click.Parameter, name: str | None) -> str | None:
        if name is not None:
            try:
                check(name)
            except InvalidArgument as error:
                raise click.BadParameter(printable(str(error))) from None
        return name

    return callback


def _check_name(name: str) -> None:
    validate_name(name, replace(Limits(), max_name_length=max(1, len(name))))


def _check_path(path: str) -> None:
    """A queue or topic, or a subscription by its whole path."""
    segments = [each for each in path.strip("/").split("/") if each.lower() != "subscriptions"]
    _check_name("/".join(segments))


checked_name: Final = _checked(_check_name)

named_entity: Final = click.argument("entity", metavar="NAME", callback=checked_name)
"""A queue or topic that is administered."""


def checked_path(context: click.Context, parameter: click.Parameter, path: str | None) -> str | None:
    """As links know it; a slash at the beginning means nothing."""
    checked: str | None = _checked(_check_path)(context, parameter, path)
    return None if checked is None else checked.strip("/")


entity: Final = click.argument("entity", callback=checked_path)
"""Something to send to or receive from."""

topic: Final = click.argument("topic", callback=checked_name)
_subscription_check: Final = _checked(validate_subscription_name)


def named_subscription(command: T) -> T:
    """A subscription that is administered: TOPIC NAME."""
    return topic(click.argument("subscription", metavar="NAME", callback=_subscription_check)(command))


def subscription(command: T) -> T:
    """A subscription whose rules are administered: TOPIC SUBSCRIPTION."""
    return topic(click.argument("subscription", callback=_subscription_check)(command))


rule_name: Final = click.argument("name", callback=_checked(validate_rule_name))


def sub_queue_option(help: str) -> Callable[[T], T]:
    return click.option("--sub-queue", type=click.Choice([each.value for each in SubQueue]), help=help)


def maximum(default: int) -> Callable[[T], T]:
    return click.option(
        "--max",
        "limit",
        type=click.IntRange(min=1),
        metavar="N",
        default=default,
        show_default=True,
        help="How many at most.",
    )
