"""The options that make a rule: what a message must be like, and what is done to it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Final

import click

from tandembus.cli.parameters import typed_property
from tandembus.descriptions import (
    CorrelationFilter,
    FalseFilter,
    Filter,
    RuleDescription,
    SqlAction,
    SqlFilter,
    TrueFilter,
)

CORRELATION: Final = (
    ("--correlation-id", "correlation_id", "Correlation id."),
    ("--message-id", "message_id", "Message id."),
    ("--to", "to", "To address."),
    ("--reply-to", "reply_to", "Where answers are expected."),
    ("--subject", "label", "Subject (label)."),
    ("--session-id", "session_id", "Session id."),
    ("--reply-to-session-id", "reply_to_session_id", "Session of the answers."),
    ("--content-type", "content_type", "Content type."),
)
_PAIR: Final = "NAME[:TYPE]=VALUE"


def rule_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options; the command gets those that were given, as `rule`."""

    @wraps(command)
    def run(**arguments: Any) -> Any:
        chosen = {name: arguments.pop(name) for name in [option.name for option in _OPTIONS]}
        rule = {name: value for name, value in chosen.items() if value not in (None, False, ())}
        return command(rule=rule, **arguments)

    for option in reversed(_OPTIONS):
        run = option.add(run)
    return run


class _Option:
    """An option that can be added to several commands."""

    def __init__(self, name: str, *declarations: str, **settings: Any) -> None:
        self.name: Final = name
        self.add: Final = click.option(*declarations, name, **settings)


_OPTIONS: Final = (
    _Option("sql", "--sql", metavar="EXPRESSION", help="SQL filter, such as \"total > 5 AND sys.Label = 'new'\"."),
    _Option(
        "parameters",
        "--parameter",
        type=typed_property,
        metavar=_PAIR,
        multiple=True,
        help="Value of a @name in --sql or --action; may be repeated.",
    ),
    *[
        _Option(field, name, help=f"Correlation filter: {text[0].lower()}{text[1:]}")
        for name, field, text in CORRELATION
    ],
    _Option(
        "properties",
        "--property",
        type=typed_property,
        metavar=_PAIR,
        multiple=True,
        help="Correlation filter: application property, typed as for `tandembus send`; may be repeated.",
    ),
    _Option("true", "--true", is_flag=True, help="Every message."),
    _Option("false", "--false", is_flag=True, help="No message."),
    _Option(
        "action",
        "--action",
        metavar="STATEMENTS",
        help='What is done to the copy, such as "SET priority = 1; REMOVE secret".',
    ),
)


def rule_from_options(name: str, chosen: dict[str, Any]) -> RuleDescription:
    """The rule that the options mean; one kind of filter, or none for every message."""
    parameters = tuple(
        (key if key.startswith("@") else f"@{key}", value) for key, value in chosen.get("parameters", ())
    )
    filter = _filter(chosen, parameters)
    action = chosen.get("action")
    if parameters and not isinstance(filter, SqlFilter) and action is None:
        raise click.UsageError("--parameter goes with --sql or --action.")
    return RuleDescription(name, filter, None if action is None else SqlAction(action, _used(parameters, action)))


def _filter(chosen: dict[str, Any], parameters: tuple[tuple[str, object], ...]) -> Filter:
    fields = {field: chosen[field] for _, field, _ in CORRELATION if field in chosen}
    properties = chosen.get("properties", ())
    kinds = [name for name in ("sql", "true", "false") if name in chosen] + (
        ["correlation"] if fields or properties else []
    )
    if len(kinds) > 1:
        raise click.UsageError("A rule has one filter: --sql, --true, --false, or the options of a correlation filter.")
    match kinds:
        case ["sql"]:
            return SqlFilter(chosen["sql"], _used(parameters, chosen["sql"]))
        case ["correlation"]:
            return CorrelationFilter(**fields, properties=properties)
        case ["false"]:
            return FalseFilter()
        case _:
            return TrueFilter()


def _used(parameters: tuple[tuple[str, object], ...], expression: str) -> tuple[tuple[str, object], ...]:
    """Of the parameters, those that an expression speaks of."""
    return tuple([pair for pair in parameters if pair[0].lower() in expression.lower()])
