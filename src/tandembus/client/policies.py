"""Who may do what: the policies of a queue or topic, or of the whole namespace, with their keys.

Those of an entity stand in its description, so every Service Bus has them. The namespace's own are asked for in a
way that only a tandembus namespace knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Protocol

from tandembus.client.access_policies import AccessPolicy, new_key
from tandembus.client.administration import Administration
from tandembus.client.entities import QueueSettings, TopicSettings
from tandembus.errors import EntityAlreadyExists, EntityNotFound


class Policies(Protocol):
    """The policies of one place. A changed key counts at once for whoever connects anew."""

    async def all(self) -> Sequence[AccessPolicy]: ...

    async def get(self, name: str) -> AccessPolicy:
        """`EntityNotFound` if there is none of this name."""

    async def create(self, policy: AccessPolicy) -> AccessPolicy:
        """A key that is not given is made. `EntityAlreadyExists` if the name is taken."""

    async def regenerate(self, name: str, secondary: bool) -> AccessPolicy:
        """Make one of the two keys anew; tokens of the old one are worth nothing from then on."""

    async def remove(self, name: str) -> None: ...


class EntityPolicies:
    """The policies of one queue or topic; a topic's are good for its subscriptions, too."""

    def __init__(self, administration: Administration, entity: str) -> None:
        self._administration: Final = administration
        self._entity: Final = entity

    async def all(self) -> Sequence[AccessPolicy]:
        return (await self._administration.get_entity(self._entity)).settings.policies or ()

    async def get(self, name: str) -> AccessPolicy:
        return _named(await self.all(), name)

    async def create(self, policy: AccessPolicy) -> AccessPolicy:
        present = await self.all()
        if any(each.name == policy.name for each in present):
            raise EntityAlreadyExists(f"{self._entity} has a policy '{policy.name}' already.")
        primary, secondary = policy.primary_key or new_key(), policy.secondary_key or new_key()
        made = replace(policy, primary_key=primary, secondary_key=secondary)
        await self._put((*present, made))
        return await self.get(policy.name)

    async def regenerate(self, name: str, secondary: bool) -> AccessPolicy:
        present = await self.all()
        renewed = _named(present, name).with_new_key(secondary)
        await self._put(tuple([renewed if each.name == name else each for each in present]))
        return renewed

    async def remove(self, name: str) -> None:
        present = await self.all()
        gone = _named(present, name)
        await self._put(tuple([each for each in present if each is not gone]))

    async def _put(self, policies: tuple[AccessPolicy, ...]) -> None:
        found = await self._administration.get_entity(self._entity)
        if isinstance(found.settings, TopicSettings):
            await self._administration.update_topic(self._entity, TopicSettings(policies=policies))
        else:
            await self._administration.update_queue(self._entity, QueueSettings(policies=policies))


def _named(policies: Sequence[AccessPolicy], name: str) -> AccessPolicy:
    for policy in policies:
        if policy.name == name:
            return policy
    raise EntityNotFound(f"There is no policy '{name}'.")
