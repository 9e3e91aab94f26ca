"""Whether an entity may forward to another: the target is there, and no message would go in circles or too far.

Only forwarding of messages makes chains. Dead letters are forwarded when something went wrong, so a parking queue that
sends them back where they came from is no loop; the broker counts every message's hops anyway. Only hops end what an
entity forwards to itself, or a subscription to its own topic: the service allows that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tandembus.descriptions import QueueDescription, SubscriptionDescription
from tandembus.errors import InvalidArgument
from tandembus.limits import Limits
from tandembus.namespace.catalog_view import CatalogView
from tandembus.security.scopes import fold

Forwarding = QueueDescription | SubscriptionDescription
Chains = Mapping[str, set[str]]


def check_forwarding(catalog: CatalogView, new: Forwarding, old: Forwarding | None, limits: Limits) -> None:
    """Raises InvalidArgument. What was set before is not asked for again: its target may be gone by now."""
    before = (None, None) if old is None else (old.forward_to, old.forward_dead_lettered_messages_to)
    after = (new.forward_to, new.forward_dead_lettered_messages_to)
    for name, target, earlier in zip(("ForwardTo", "ForwardDeadLetteredMessagesTo"), after, before, strict=True):
        if target is not None and target != earlier:
            _check_target(catalog, name, target, _node(new))
    if new.forward_to is not None and new.forward_to != before[0] and fold(new.forward_to) != _node(new):
        _check_chain(catalog, new, fold(new.forward_to), limits)


def _check_target(catalog: CatalogView, name: str, target: str, itself: str) -> None:
    is_there = catalog.find_queue(target) is not None or catalog.find_topic(target) is not None
    if not is_there and fold(target) != itself:
        raise InvalidArgument(f"{name} is '{target}', which is no queue or topic of this namespace. Create it first.")


def _check_chain(catalog: CatalogView, new: Forwarding, target: str, limits: Limits) -> None:
    source = _node(new)
    onward: dict[str, set[str]] = {}
    backward: dict[str, set[str]] = {}
    for start, end in _links(catalog, new):
        onward.setdefault(start, set()).add(end)
        backward.setdefault(end, set()).add(start)
    if source in _reached(onward, target):
        raise InvalidArgument(f"'{new.path}' cannot forward to '{new.forward_to}': its messages would come back.")
    most = limits.max_forward_hops
    if _longest(backward, source, most) + 1 + _longest(onward, target, most) > most:
        raise InvalidArgument(
            f"'{new.path}' cannot forward to '{new.forward_to}': messages would be forwarded more than {most} times "
            "in a row."
        )


def _node(description: Forwarding) -> str:
    """A topic's messages leave it through its subscriptions."""
    name = description.name if isinstance(description, QueueDescription) else description.topic_name
    return fold(name)


def _links(catalog: CatalogView, new: Forwarding) -> Iterator[tuple[str, str]]:
    """From where to where messages are forwarded, apart from the entity that is being asked about, and from what goes
    round at one place."""
    skipped = fold(new.path)
    for queue in catalog.queues():
        if queue.description.forward_to is not None and queue.key not in (skipped, fold(queue.description.forward_to)):
            yield queue.key, fold(queue.description.forward_to)
    for topic in catalog.topics():
        for subscription in catalog.subscriptions(topic.key):
            target = fold(subscription.description.forward_to or topic.key)
            if target != topic.key and subscription.key != skipped:
                yield topic.key, target


def _reached(chains: Chains, start: str) -> set[str]:
    reached: set[str] = set()
    waiting = [start]
    while waiting:
        one = waiting.pop()
        if one not in reached:
            reached.add(one)
            waiting += chains.get(one, ())
    return reached


def _longest(chains: Chains, start: str, enough: int) -> int:
    """Steps of the longest chain, a level at a time; counting ends at `enough`, so a circle cannot make it endless."""
    length = 0
    level = {start}
    while length < enough:
        level = {end for one in level for end in chains.get(one, ())}
        if not level:
            break
        length += 1
    return length
