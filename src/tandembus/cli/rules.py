"""`tandembus rule`, and the options that make a rule: what a message must be like, and what is done to it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Final

import click

from tandembus.cli.arguments import PROPERTY, rule_name, stacked, subscription_arguments, typed_property
from tandembus.cli.entity_output import show_deleted, show_rule, show_rules
from tandembus.cli.failures import creating
from tandembus.cli.target import Target, confirmed, namespace_options
from tandembus.descriptions import (
    CorrelationFilter,
    FalseFilter,
    Filter,
    RuleDescription,
    SqlAction,
    SqlFilter,
    TrueFilter,
)

CORRELATION: Final = {
    "correlation_id": ("--correlation-id", "correlation id."),
    "message_id": ("--message-id", "message id."),
    "to": ("--to", "to address."),
    "reply_to": ("--reply-to", "where answers are expected."),
    "label": ("--subject", "subject (label)."),
    "session_id": ("--session-id", "session id."),
    "reply_to_session_id": ("--reply-to-session-id", "session of the answers."),
    "content_type": ("--content-type", "content type."),
}
_CHOSEN: Final = ("sql", "parameters", *CORRELATION, "properties", "true", "false", "action")
_OPTIONS: Final = stacked(
    click.option("--sql", metavar="EXPRESSION", help="SQL filter, such as \"total > 5 AND sys.Label = 'new'\"."),
    click.option(
        "--parameter",
        "parameters",
        type=typed_property,
        metavar=PROPERTY,
        multiple=True,
        help="Value of a @name in --sql or --action; may be repeated.",
    ),
    *[click.option(name, field, help=f"Correlation filter: {help}") for field, (name, help) in CORRELATION.items()],
    click.option(
        "--property",
        "properties",
        type=typed_property,
        metavar=PROPERTY,
        multiple=True,
        help="Correlation filter: application property, typed as for `tandembus send`; may be repeated.",
    ),
    click.option("--true", is_flag=True, help="Every message."),
    click.option("--false", is_flag=True, help="No message."),
    click.option(
        "--action", metavar="STATEMENTS", help='What is done to the copy, such as "SET priority = 1; REMOVE secret".'
    ),
)


def rule_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options; the command gets those that were given, as `rule`."""

    @wraps(command)
    def run(**arguments: Any) -> Any:
        chosen = {name: arguments.pop(name) for name in _CHOSEN}
        return command(rule={name: each for name, each in chosen.items() if each not in (None, False, ())}, **arguments)

    return _OPTIONS(run)


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
    fields = {field: chosen[field] for field in CORRELATION if field in chosen}
    properties = chosen.get("properties", ())
    kinds: list[str] = [name for name in ("sql", "true", "false") if name in chosen]
    kinds += ["correlation"] if fields or properties else []
    if len(kinds) > 1:
        raise click.UsageError("A rule has one filter: --sql, --true, --false, or the options of a correlation filter.")
    match kinds:
        case ["sql"]:
            return SqlFilter(chosen["sql"], _used(parameters, chosen["sql"]))
        case ["correlation"]:
            return CorrelationFilter(**fields, properties=properties)
        case ["false"]:
            return FalseFilter()
    return TrueFilter()


def _used(parameters: tuple[tuple[str, object], ...], expression: str) -> tuple[tuple[str, object], ...]:
    """The parameters that an expression names."""
    return tuple([pair for pair in parameters if pair[0].lower() in expression.lower()])


@click.group()
def rule() -> None:
    """Choose which of a topic's messages a subscription gets, and change them.

    \b
    A subscription gets a message that one of its rules matches; one more copy for every rule with an action. A new
    subscription has the rule $Default, which matches everything: delete it to be choosy.
      tandembus rule add events audit large --sql "total > 1000"
      tandembus rule delete events audit '$Default'
    JSON of a rule: {"name", "filter": {"kind": "sql" | "correlation" | "true" | "false", ...}, "action", "created_at"}
    """


@rule.command("add")
@subscription_arguments
@rule_name
@rule_options
@click.option("--replace", is_flag=True, help="Put it in the place of a rule of the same name, which must be there.")
@namespace_options
async def add(target: Target, topic: str, subscription: str, name: str, rule: dict[str, Any], replace: bool) -> None:
    """Add a rule to a subscription.

    Without a filter it matches every message. A correlation filter compares everything that is named, and is the
    faster kind. An SQL filter knows application properties by their name and the others as sys.Label, sys.MessageId,
    sys.CorrelationId, sys.To and so on.

    \b
    Examples:
      tandembus rule add events audit dear --sql "total > @least" --parameter least:double=99.5
      tandembus rule add events audit red --subject order --property colour=red --property size:int=5
      tandembus rule add events audit marked --sql "urgent = TRUE" --action "SET sys.Label = 'urgent'"
    """
    made = rule_from_options(name, rule)
    async with target.administration() as namespace:
        if replace:
            show_rule(target, await namespace.update_rule(topic, subscription, made), "replaced")
        else:
            show_rule(target, await creating(namespace.create_rule(topic, subscription, made)), "added")


@rule.command("list")
@subscription_arguments
@namespace_options
async def list_rules(target: Target, topic: str, subscription: str) -> None:
    """List the rules of a subscription."""
    async with target.administration() as namespace:
        show_rules(target, [each async for each in namespace.rules(topic, subscription)])


@rule.command("show")
@subscription_arguments
@rule_name
@namespace_options
async def show(target: Target, topic: str, subscription: str, name: str) -> None:
    """Show a rule of a subscription."""
    async with target.administration() as namespace:
        show_rule(target, await namespace.get_rule(topic, subscription, name))


@rule.command("delete")
@subscription_arguments
@rule_name
@confirmed(lambda topic, subscription, name: f"Delete the rule {name} of {topic}/{subscription}?")
async def delete(target: Target, topic: str, subscription: str, name: str) -> None:
    """Delete a rule of a subscription.

    A subscription without rules gets no messages. Asks first when a person is there to answer.
    """
    async with target.administration() as namespace:
        await namespace.delete_rule(topic, subscription, name)
    show_deleted(target, "rule", name, topic=topic, subscription=subscription)
