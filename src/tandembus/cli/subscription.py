"""`tandembus subscription`: create, list, show, update, delete and purge subscriptions of a topic."""

from __future__ import annotations

from typing import Any

import click

from tandembus.cli import purging
from tandembus.cli.administering import administration, creating
from tandembus.cli.arguments import named_subscription, sub_queue_option
from tandembus.cli.arguments import topic as topic_argument
from tandembus.cli.entity_output import show_created, show_deleted, show_entities, show_entity
from tandembus.cli.rule_options import rule_from_options, rule_options
from tandembus.cli.settings import setting_options
from tandembus.cli.target import Target, confirmed, namespace_options
from tandembus.client import subscription_path
from tandembus.client.entities import SubscriptionSettings
from tandembus.descriptions import DEFAULT_RULE_NAME


@click.group()
def subscription() -> None:
    """Create, list, show, update, delete and purge subscriptions of a topic.

    \b
    Its messages are received from TOPIC/subscriptions/NAME; which of the topic's messages it gets is a matter of its
    rules (`tandembus rule`). A new one gets all of them.
    JSON of a subscription: "topic", its settings by name (durations in seconds, null = never), "counts", and its times.
    """


@subscription.command("create")
@named_subscription
@rule_options
@setting_options(SubscriptionSettings, creating=True)
@namespace_options
async def create(target: Target, topic: str, subscription: str, rule: dict[str, Any], **settings: Any) -> None:
    """Create a subscription of a topic.

    With a filter or an action, its first rule ($Default) is that one; without, it gets every message.

    \b
    Examples:
      tandembus subscription create events audit
      tandembus subscription create events large --sql "total > 1000 AND currency = 'EUR'"
      tandembus subscription create events jobs --requires-session --lock-duration 30s
      tandembus subscription create events copies --forward-to archive

    JSON: the subscription.
    """
    first = rule_from_options(DEFAULT_RULE_NAME, rule) if rule else None
    chosen = SubscriptionSettings(**settings)
    async with administration(target, topic) as namespace:
        made = await creating(namespace.create_subscription(topic, subscription, chosen, first))
    show_created(target, made, f"subscription show {topic} {made.name}", topic)


@subscription.command("list")
@topic_argument
@namespace_options
async def list_subscriptions(target: Target, topic: str) -> None:
    """List the subscriptions of a topic with their counts.

    JSON: one subscription per line.
    """
    async with administration(target, topic) as namespace:
        show_entities(target, "subscription", [each async for each in namespace.subscriptions(topic)], topic)


@subscription.command("show")
@named_subscription
@namespace_options
async def show(target: Target, topic: str, subscription: str) -> None:
    """Show a subscription's settings, counts and times.

    JSON: the subscription.
    """
    async with administration(target, topic) as namespace:
        show_entity(target, await namespace.get_subscription(topic, subscription), topic=topic)


@subscription.command("update")
@named_subscription
@setting_options(SubscriptionSettings, creating=False)
@namespace_options
async def update(target: Target, topic: str, subscription: str, **settings: Any) -> None:
    """Change settings of a subscription; those not named stay as they are.

    \b
    Examples:
      tandembus subscription update events audit --max-delivery-count 20
      tandembus subscription update events audit --status ReceiveDisabled

    JSON: the subscription as it is now.
    """
    changes = SubscriptionSettings(**settings)
    if changes == SubscriptionSettings():
        raise click.UsageError("Nothing to change: name at least one setting.")
    async with administration(target, topic) as namespace:
        show_entity(target, await namespace.update_subscription(topic, subscription, changes), "updated", topic)


@subscription.command("delete")
@named_subscription
@confirmed(lambda topic, subscription: f"Delete the subscription {subscription} of {topic} with all its messages?")
async def delete(target: Target, topic: str, subscription: str) -> None:
    """Delete a subscription with all its messages.

    Asks first when a person is there to answer.

    \b
    JSON: {"topic", "subscription", "deleted": true}
    """
    async with administration(target, topic) as namespace:
        await namespace.delete_subscription(topic, subscription)
    show_deleted(target, "subscription", subscription, topic=topic)


@subscription.command("purge")
@named_subscription
@sub_queue_option("Purge this sub-queue instead.")
@confirmed(
    lambda topic, subscription, sub_queue: (
        f"Delete all messages of {purging.part_of(subscription_path(topic, subscription), sub_queue)}?"
    )
)
async def purge(target: Target, topic: str, subscription: str, sub_queue: str | None) -> None:
    """Delete the messages of a subscription that are there now; the subscription stays.

    Locked and deferred messages stay as well. Asks first when a person is there to answer.

    \b
    Examples:
      tandembus subscription purge events audit
      tandembus subscription purge events audit --sub-queue dead-letter --yes

    \b
    JSON: {"topic", "subscription", "sub_queue", "purged"}
    """
    names = {"topic": topic, "subscription": subscription}
    await purging.purge(target, subscription_path(topic, subscription), sub_queue, names)
