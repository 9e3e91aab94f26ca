"""Who may do what: the policies of a queue or topic, or of the whole namespace, with their keys.

Those of an entity stand in its description, so every Service Bus has them. The namespace's own are asked for in a
way that only a tandembus namespace knows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol

from tandembus.client.access_policies import AccessPolicy, new_key
from tandembus.client.administration import Administration
from tandembus.client.atom_requests import AtomRequests
from tandembus.client.entities import QueueSettings, TopicSettings
from tandembus.errors import EntityAlreadyExists, EntityNotFound, MalformedData

NAMESPACE_POLICIES: Final = "$policies"


class Policies(Protocol):
    """The policies of one place. What is changed counts at once for whoever connects anew.

    What is about a policy that is not there raises `EntityNotFound`.
    """

    async def all(self) -> Sequence[AccessPolicy]: ...

    async def get(self, name: str) -> AccessPolicy: ...

    async def create(self, policy: AccessPolicy) -> AccessPolicy:
        """A key that is not given is made. `EntityAlreadyExists` if the name is taken."""

    async def allow(self, name: str, rights: tuple[str, ...]) -> AccessPolicy:
        """These rights in place of those it has; its keys stay."""

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
        _check_free(present, policy.name)
        primary, secondary = policy.primary_key or new_key(), policy.secondary_key or new_key()
        made = replace(policy, primary_key=primary, secondary_key=secondary)
        await self._put((*present, made))
        return made

    async def allow(self, name: str, rights: tuple[str, ...]) -> AccessPolicy:
        return await self._replace(replace(await self.get(name), rights=rights))

    async def regenerate(self, name: str, secondary: bool) -> AccessPolicy:
        return await self._replace((await self.get(name)).with_new_key(secondary))

    async def remove(self, name: str) -> None:
        present = await self.all()
        gone = _named(present, name)
        await self._put(tuple([each for each in present if each is not gone]))

    async def _replace(self, changed: AccessPolicy) -> AccessPolicy:
        present = await self.all()
        await self._put(tuple([changed if each.name == changed.name else each for each in present]))
        return changed

    async def _put(self, policies: tuple[AccessPolicy, ...]) -> None:
        found = await self._administration.get_entity(self._entity)
        if isinstance(found.settings, TopicSettings):
            await self._administration.update_topic(self._entity, TopicSettings(policies=policies))
        else:
            await self._administration.update_queue(self._entity, QueueSettings(policies=policies))


class NamespacePolicies:
    """The policies of a whole tandembus namespace."""

    def __init__(self, requests: AtomRequests) -> None:
        self._requests: Final = requests

    async def all(self) -> Sequence[AccessPolicy]:
        found = (await self._requests.send("GET", NAMESPACE_POLICIES)).get("policies")
        return [_policy_of(each) for each in found if isinstance(each, dict)] if isinstance(found, list) else []

    async def get(self, name: str) -> AccessPolicy:
        return _policy_of(await self._requests.send("GET", f"{NAMESPACE_POLICIES}/{name}"))

    async def create(self, policy: AccessPolicy) -> AccessPolicy:
        _check_free(await self.all(), policy.name)
        keys = {"primary_key": policy.primary_key, "secondary_key": policy.secondary_key}
        given = {which: key for which, key in keys.items() if key}
        return await self._put(policy.name, {"rights": list(policy.rights), **given})

    async def allow(self, name: str, rights: tuple[str, ...]) -> AccessPolicy:
        await self.get(name)
        return await self._put(name, {"rights": list(rights)})

    async def regenerate(self, name: str, secondary: bool) -> AccessPolicy:
        path = f"{NAMESPACE_POLICIES}/{name}/regenerate"
        return _policy_of(await self._requests.send("POST", path, query="&key=" + _which(secondary)))

    async def remove(self, name: str) -> None:
        await self._requests.send("DELETE", f"{NAMESPACE_POLICIES}/{name}")

    async def _put(self, name: str, document: Mapping[str, object]) -> AccessPolicy:
        return _policy_of(await self._requests.send("PUT", f"{NAMESPACE_POLICIES}/{name}", document))


def _which(secondary: bool) -> str:
    return "secondary" if secondary else "primary"


def _named(policies: Sequence[AccessPolicy], name: str) -> AccessPolicy:
    for policy in policies:
        if policy.name == name:
            return policy
    raise EntityNotFound(f"There is no policy '{name}'.")


def _check_free(policies: Sequence[AccessPolicy], name: str) -> None:
    if any(policy.name == name for policy in policies):
        raise EntityAlreadyExists(f"There is a policy '{name}' already.")


def _policy_of(document: Mapping[str, object]) -> AccessPolicy:
    rights = document.get("rights")
    if not isinstance(rights, list) or not document.get("name"):
        raise MalformedData("the service answered with something that is not a policy")
    keys = [str(document.get(which) or "") for which in ("primary_key", "secondary_key")]
    return AccessPolicy(str(document["name"]), tuple(sorted([str(right) for right in rights])), *keys)
