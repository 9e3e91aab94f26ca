"""Which resource of the administration an address names."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from tandembus.descriptions import subscription_path
from tandembus.errors import EntityNotFound, InvalidArgument
from tandembus.namespace.paths import DEAD_LETTER

SUBSCRIPTIONS: Final = "subscriptions"
RULES: Final = "rules"


class Resource(Enum):
    ENTITY = "queue or topic"
    SUBSCRIPTIONS = "the subscriptions of a topic"
    SUBSCRIPTION = "subscription"
    RULES = "the rules of a subscription"
    RULE = "rule"


@dataclass(frozen=True, slots=True)
class ResourcePath:
    resource: Resource
    name: str
    """Of the queue or topic."""
    subscription: str = ""
    rule: str = ""

    @property
    def entity(self) -> str:
        """The path of the entity that it is, or belongs to."""
        return subscription_path(self.name, self.subscription) if self.subscription else self.name


def parse_resource_path(path: str) -> ResourcePath:
    """From a decoded path. The first segment called so is the one that means it: no topic's name holds another, while a
    subscription or rule may be called anything. Raises EntityNotFound, InvalidArgument for a sub-queue."""
    segments = path.split("/")
    folded = [segment.lower() for segment in segments]
    if folded[-1] == DEAD_LETTER and RULES not in folded:
        raise InvalidArgument(f"'{path[:300]}' is a dead-letter queue, which has no description of its own.")
    if SUBSCRIPTIONS not in folded[1:]:
        return ResourcePath(Resource.ENTITY, path)
    at = folded.index(SUBSCRIPTIONS, 1)
    topic, behind = "/".join(segments[:at]), segments[at + 1 :]
    if not behind:
        return ResourcePath(Resource.SUBSCRIPTIONS, topic)
    if len(behind) == 1:
        return ResourcePath(Resource.SUBSCRIPTION, topic, behind[0])
    if behind[1].lower() == RULES and len(behind) == 2:
        return ResourcePath(Resource.RULES, topic, behind[0])
    if behind[1].lower() == RULES and len(behind) == 3:
        return ResourcePath(Resource.RULE, topic, behind[0], behind[2])
    raise EntityNotFound(f"There is nothing at '/{path}'.")
