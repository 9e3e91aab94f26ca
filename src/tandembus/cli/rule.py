"""`tandembus rule`: say which of a topic's messages a subscription gets."""

from __future__ import annotations

from typing import Any

import click

from tandembus.cli.administering import administration, creating
from tandembus.cli.arguments import rule_name, subscription
from tandembus.cli.entity_output import show_deleted, show_rule, show_rules
from tandembus.cli.rule_options import rule_from_options, rule_options
from tandembus.cli.target import Target, confirmed, namespace_options


@click.group()
def rule() -> None:
    """Say which of a topic's messages a subscription gets, and what is done to them.

    \b
    A subscription gets a message that one of its rules matches; one more copy for every rule with an action. A new
    subscription has the rule $Default, which matches everything: delete it to be choosy.
      tandembus rule add events audit large --sql "total > 1000"
      tandembus rule delete events audit '$Default'
    JSON of a rule: {"name", "filter": {"kind": "sql" | "correlation" | "true" | "false", ...}, "action", "created_at"}
    """


@rule.command("add")
@subscription
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
      tandembus rule add events audit large --sql "total > 1000 AND country IN ('FR', 'DE')"
      tandembus rule add events audit dear --sql "total > @least" --parameter least:double=99.5
      tandembus rule add events audit red --subject order --property colour=red --property size:int=5
      tandembus rule add events audit marked --sql "urgent = TRUE" --action "SET sys.Label = 'urgent'"

    JSON: the rule.
    """
    made = rule_from_options(name, rule)
    async with administration(target, topic, subscription) as namespace:
        if replace:
            show_rule(target, await namespace.update_rule(topic, subscription, made), "replaced")
        else:
            show_rule(target, await creating(namespace.create_rule(topic, subscription, made)), "added")


@rule.command("list")
@subscription
@namespace_options
async def list_rules(target: Target, topic: str, subscription: str) -> None:
    """List the rules of a subscription.

    JSON: one rule per line.
    """
    async with administration(target, topic, subscription) as namespace:
        show_rules(target, [each async for each in namespace.rules(topic, subscription)])


@rule.command("show")
@subscription
@rule_name
@namespace_options
async def show(target: Target, topic: str, subscription: str, name: str) -> None:
    """Show a rule of a subscription.

    JSON: the rule.
    """
    async with administration(target, topic, subscription) as namespace:
        show_rule(target, await namespace.get_rule(topic, subscription, name))


@rule.command("delete")
@subscription
@rule_name
@confirmed(lambda topic, subscription, name: f"Delete the rule {name} of {topic}/{subscription}?")
async def delete(target: Target, topic: str, subscription: str, name: str) -> None:
    """Delete a rule of a subscription.

    A subscription without rules gets no messages. Asks first when a person is there to answer.

    \b
    JSON: {"topic", "subscription", "rule", "deleted": true}
    """
    async with administration(target, topic, subscription) as namespace:
        await namespace.delete_rule(topic, subscription, name)
    show_deleted(target, "rule", name, topic=topic, subscription=subscription)
