"""`tandembus export` and `import`: what a namespace has, as a Config.json, and brought about in another."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tandembus.cli import main
from tandembus.client.access_policies import AccessPolicy, new_key
from tandembus.client.administration import Administration
from tandembus.client.entities import QueueSettings, SubscriptionSettings, TopicSettings
from tandembus.client.policies import NamespacePolicies
from tandembus.descriptions import CorrelationFilter, FalseFilter, RuleDescription, SqlAction, SqlFilter
from tests.covers import covers
from tests.integration.serving import RunningNamespace, serving

KEYS = [new_key(), new_key()]
FULL = QueueSettings(
    lock_duration_s=30,
    max_size_mb=2048,
    requires_duplicate_detection=True,
    requires_session=True,
    default_time_to_live_s=3600,
    dead_lettering_on_expiration=True,
    duplicate_detection_window_s=60,
    max_delivery_count=5,
    batched_operations=False,
    policies=(AccessPolicy("app", ("Send",), *KEYS),),
    auto_delete_on_idle_s=7200,
    partitioning=True,
    user_metadata="of \u202ewhat we are\nproud",
    forward_dead_letters_to="errors",
)
COMPARED = (
    ("i", 5),
    ("f", 5.0),
    ("b", True),
    ("s", "text"),
    ("d", datetime(2031, 5, 17, 12, 30, 15, tzinfo=UTC)),
    ("t", timedelta(seconds=5)),
)


def run(*arguments: str | Path, exit_code: int = 0) -> Result:
    result = CliRunner().invoke(main, [str(one) for one in arguments])
    assert result.exit_code == exit_code, result.output
    return result


def administer(running: RunningNamespace, work: Callable[[Administration], Awaitable[None]]) -> None:
    async def work_there() -> None:
        async with Administration(running.connection_string) as namespace:
            await work(namespace)

    asyncio.run(work_there())


async def fill(namespace: Administration) -> None:
    for name in ("plain", "errors"):
        await namespace.create_queue(name)
    await namespace.create_queue("full", FULL)
    await namespace.create_queue("off", QueueSettings(status="SendDisabled", forward_to="plain"))
    await namespace.create_topic("events", TopicSettings(support_ordering=False))
    await namespace.create_subscription("events", "all")
    await namespace.create_subscription("events", "none")
    await namespace.delete_rule("events", "none", "$Default")
    settings = SubscriptionSettings(forward_to="errors", dead_lettering_on_filter_errors=False)
    sql = SqlFilter("total > @least", (("@least", 5),))
    await namespace.create_subscription("events", "big", settings, RuleDescription("sql", sql, SqlAction("SET x = 1")))
    compared = CorrelationFilter(label="a", properties=COMPARED)
    for rule in (RuleDescription("equal", compared), RuleDescription("never", FalseFilter())):
        await namespace.create_rule("events", "big", rule)
    await NamespacePolicies(namespace.requests).create(AccessPolicy("reader", ("Listen",)))


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    """From a namespace that has some of everything."""
    file = tmp_path / "Config.json"
    with serving(tmp_path / "first") as running:
        administer(running, fill)
        file.write_text(run("export", running.connection_string).stdout)
    return file


@pytest.fixture
def second(tmp_path: Path) -> Iterator[RunningNamespace]:
    with serving(tmp_path / "second") as running:
        yield running


@covers("B2")
def test_what_is_exported_and_imported_is_exported_the_same(exported: Path, second: RunningNamespace) -> None:
    text = exported.read_text()
    assert not [key for key in KEYS if key in text]
    created = json.loads(run("import", exported, second.connection_string, "--json").stdout)["created"]
    assert run("export", second.connection_string).stdout == text
    again = json.loads(run("import", exported, "--connection-string", second.connection_string, "--json").stdout)
    assert again == {"created": [], "unchanged": created, "different": []}


@covers("B2")
def test_a_namespace_that_is_served_from_an_export_exports_the_same(exported: Path, tmp_path: Path) -> None:
    for _ in range(2):
        with serving(tmp_path / "third", "--config", str(exported)) as running:
            assert run("export", running.connection_string).stdout == exported.read_text()


@covers("B2")
def test_an_import_creates_what_is_missing_and_only_reports_what_differs(
    exported: Path, second: RunningNamespace
) -> None:
    async def change(namespace: Administration) -> None:
        await namespace.update_queue("plain", QueueSettings(lock_duration_s=7))
        await namespace.delete_rule("events", "big", "never")
        await namespace.create_rule("events", "all", RuleDescription("more", SqlFilter("1=1")))
        await namespace.delete_queue("off")
        await namespace.create_topic("off")
        await namespace.delete_subscription("events", "none")

    run("import", exported, second.connection_string)
    administer(second, change)
    before = run("export", second.connection_string).stdout
    told = json.loads(run("import", exported, second.connection_string, "--json", exit_code=1).stdout)
    never, more = ({"FilterType": "Sql", "SqlFilter": {"SqlExpression": text}} for text in ("1=0", "1=1"))
    assert told["created"] == ["events/Subscriptions/none"]
    assert [list(one.values()) for one in told["different"]] == [
        ["off", "Kind", "topic", "queue"],
        ["plain", "LockDuration", "PT7S", "PT1M"],
        ["events/Subscriptions/all", "Rules/more", more, None],
        ["events/Subscriptions/big", "Rules/never", None, never],
    ]
    administer(second, lambda namespace: namespace.delete_subscription("events", "none"))
    assert run("export", second.connection_string).stdout == before


@covers("B2")
def test_of_a_file_with_a_mistake_nothing_is_imported(exported: Path, second: RunningNamespace) -> None:
    before = run("export", second.connection_string).stdout
    exported.write_text(exported.read_text().replace('"PT30S"', '"PT6M"'))
    refused = run("import", exported, second.connection_string, exit_code=2)
    assert "LockDuration is 360 s; allowed: 0.001 s to 300 s." in refused.stderr
    assert run("export", second.connection_string).stdout == before
