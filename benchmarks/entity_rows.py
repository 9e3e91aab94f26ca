"""Rows of the other kinds of entities, each against a plain queue of the same run: topics, sessions, duplicates."""

from collections.abc import Callable

from benchmarks.load_client import LoadClient
from benchmarks.rows import TANDEMBUS, Figures, Sizes
from benchmarks.tandembus_node import Tandembus

SUBSCRIPTIONS = 10
PER_SESSION = 10
RECEIVERS = 8


def measure_entities(
    client: LoadClient, node: Tandembus, sizes: Sizes, figures: Figures, say: Callable[[str], None]
) -> None:
    """In turn with a plain queue, round by round, and new each round: nothing of the one before counts."""
    for number in range(1, sizes.rounds + 1):
        say(f"round {number} of {sizes.rounds}: topics, sessions, duplicates")
        _measure_plain(client, node, sizes, figures, f"plain-{number}")
        _measure_topic(client, node, sizes, figures, f"topic-{number}")
        _measure_sessions(client, node, sizes, figures, f"sessions-{number}")
        _measure_duplicates(client, node, sizes, figures, f"duplicates-{number}")


def _measure_plain(client: LoadClient, node: Tandembus, sizes: Sizes, figures: Figures, name: str) -> None:
    node.create("queue", name)
    target, count = node.target(name), sizes.messages
    figures.rate("send to a new queue", TANDEMBUS, client.run(target, mode="send", count=count).send_rate)
    figures.rate("drain a new queue", TANDEMBUS, client.run(target, mode="recv", count=count).receive_rate)
    client.run(target, mode="send", count=count)
    load = client.run(target, mode="recv", count=count, receivers=RECEIVERS, credit=PER_SESSION)
    figures.rate("drain by 8 receivers", TANDEMBUS, load.receive_rate)


def _measure_topic(client: LoadClient, node: Tandembus, sizes: Sizes, figures: Figures, name: str) -> None:
    """Deliveries of all subscriptions together, drained one after the other."""
    node.create("topic", name)
    names = [f"s{number}" for number in range(SUBSCRIPTIONS)]
    for subscription in names:
        node.create("subscription", name, subscription)
    count = sizes.messages // 2
    figures.rate("send to a topic", TANDEMBUS, client.run(node.target(name), mode="send", count=count).send_rate)
    seconds = 0.0
    for subscription in names:
        load = client.run(node.target(f"{name}/Subscriptions/{subscription}"), mode="recv", count=count)
        seconds += count / load.receive_rate
    figures.rate("topic deliveries", TANDEMBUS, count * SUBSCRIPTIONS / seconds)


def _measure_sessions(client: LoadClient, node: Tandembus, sizes: Sizes, figures: Figures, name: str) -> None:
    node.create("queue", name, "--requires-session")
    sessions = sizes.messages // PER_SESSION
    target = node.target(name)
    client.run(target, mode="send", count=sizes.messages, sessions=sessions)
    options = {"sessions": sessions, "per_session": PER_SESSION, "receivers": RECEIVERS}
    load = client.run(target, mode="recv", count=sizes.messages, **options)
    figures.rate("drain sessions by 8 receivers", TANDEMBUS, load.receive_rate)


def _measure_duplicates(client: LoadClient, node: Tandembus, sizes: Sizes, figures: Figures, name: str) -> None:
    node.create("queue", name, "--requires-duplicate-detection")
    load = client.run(node.target(name), mode="send", count=sizes.messages)
    figures.rate("send with duplicate detection", TANDEMBUS, load.send_rate)
