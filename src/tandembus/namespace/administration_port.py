"""Administration as front ends use it: in their process, or over a connection to the process that has the catalog."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from tandembus.descriptions import AuthorizationRule, EntityDescription, RuleDescription
from tandembus.namespace.entries import Entry


class AdministrationPort(Protocol):
    """A call that returns took effect everywhere; one that raises changed nothing, unless the outcome is unknown."""

    async def create(self, description: EntityDescription, default_rule: RuleDescription | None = None) -> Entry:
        """A subscription gets what is sent from now on and its default rule lets through; without one, everything."""

    async def update(self, description: EntityDescription) -> Entry: ...

    async def delete(self, description: EntityDescription) -> None:
        """Deletes the entity of this name and kind; a topic with all its subscriptions, all at once."""

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
