"""What front ends ask of administration: in their process, or over the connection to the one that has the catalog."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from tandembus.descriptions import (
    AuthorizationRule,
    QueueDescription,
    RuleDescription,
    SubscriptionDescription,
    TopicDescription,
)
from tandembus.namespace.entries import QueueEntry, SubscriptionEntry, TopicEntry


class AdministrationPort(Protocol):
    """What returns is in effect everywhere; what raises has changed nothing, unless the outcome is unknown."""

    async def create_queue(self, description: QueueDescription) -> QueueEntry: ...

    async def update_queue(self, description: QueueDescription) -> QueueEntry: ...

    async def delete_queue(self, name: str) -> None: ...

    async def create_topic(self, description: TopicDescription) -> TopicEntry: ...

    async def update_topic(self, description: TopicDescription) -> TopicEntry: ...

    async def delete_topic(self, name: str) -> None:
        """With all its subscriptions, and all at once."""

    async def create_subscription(
        self, description: SubscriptionDescription, default_rule: RuleDescription | None = None
    ) -> SubscriptionEntry:
        """It gets what is sent from now on, if the default rule lets it through; without one, everything."""

    async def update_subscription(self, description: SubscriptionDescription) -> SubscriptionEntry: ...

    async def delete_subscription(self, topic: str, name: str) -> None: ...

    async def create_rule(self, topic: str, subscription: str, rule: RuleDescription) -> RuleDescription:
        """Raises InvalidArgument for what does not compile, and then nothing is stored."""

    async def update_rule(self, topic: str, subscription: str, rule: RuleDescription) -> RuleDescription:
        """Another filter and action for the rule of this name. Messages that are there already stay."""

    async def delete_rule(self, topic: str, subscription: str, name: str) -> None: ...

    async def put_policy(self, policy: AuthorizationRule) -> None:
        """Of the namespace, new or in place of the one of this name."""

    async def remove_policy(self, name: str) -> None: ...

    async def record_accesses(self, times: Mapping[str, float]) -> None:
        """When entities were last used, by their path: what nobody uses may be deleted for that."""
