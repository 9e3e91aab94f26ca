"""A failover on the screen: namespaces that know each other, a paired client, an outage, and a killed primary."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError
from playwright.sync_api import Browser, Locator, expect

from tandembus.pairing import EntityHealthy, FailoverEngaged, PingFailed
from tests.covers import covers
from tests.dashboard.screens import Screen, screen
from tests.dashboard.stage import Stage
from tests.integration.pairs import Form, Pair
from tests.integration.python_sdk import LoopThread
from tests.integration.serving import RunningNamespace, serving, start_namespace

SOON_HEALTHY_MS = 40_000.0
"""An entity is called `back` for ten seconds after the last sign of the outage."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pair")


@pytest.fixture(scope="module")
def backup(folder: Path) -> Iterator[RunningNamespace]:
    with serving(folder / "backup", "--name", "backup", "--partner-data", str(folder / "contoso")) as running:
        yield running


@pytest.fixture(scope="module")
def namespace(folder: Path, backup: RunningNamespace) -> Iterator[RunningNamespace]:
    """The primary. The last test of the file kills it."""
    primary = start_namespace(folder / "contoso", "--name", "contoso", "--partner-data", str(folder / "backup"))
    yield primary
    if primary.process.poll() is None:
        primary.stop()


@pytest.fixture(scope="module")
def form() -> Iterator[Form]:
    loop = LoopThread()
    form = Form("async", loop)
    yield form
    form.close()
    loop.stop()


@pytest.fixture(scope="module")
def pair(form: Form, stage: Stage, namespace: RunningNamespace, backup: RunningNamespace) -> Pair:
    for queue in ("orders", "bills"):
        stage.make(queue)
    pair = Pair(
        form,
        form.client(namespace.connection_string),
        form.client(backup.connection_string),
        form.admin(backup.connection_string, backup.ca_path),
        primary_name="contoso",
        failover_interval=timedelta(seconds=2),
        operation_timeout=timedelta(seconds=3),
    )
    form.closing_first(pair.close)
    return pair


@pytest.fixture
def beside(browser: Browser, backup: RunningNamespace) -> Iterator[Screen]:
    """The secondary's dashboard, in the same browser as far as cookies go."""
    with screen(browser, backup) as one:
        one.sign_in(backup.connection_string)
        yield one


def divert(sender: Any, count: int) -> None:
    """So many messages end in the backlog; what fails before that does not count."""
    sent = 0
    while sent < count:
        try:
            sender.send_messages(ServiceBusMessage("x"))
            sent += 1
        except ServiceBusError:
            continue


def bring_home(primary: RunningNamespace, backup: RunningNamespace) -> None:
    options = ["--primary", primary.connection_string, "--secondary", backup.connection_string]
    command = [sys.executable, "-m", "tandembus", "syphon", *options, "--primary-name", "contoso", "--once"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)


def lane(shown: Screen, path: str) -> Locator:
    return shown.page.locator(".lane").filter(has=shown.page.get_by_text(path, exact=True))


def expect_state(shown: Screen, path: str, state: str, within_ms: float | None = None) -> None:
    expect(lane(shown, path).locator(".badge")).to_have_text(state, timeout=within_ms)


def expect_story(shown: Screen, path: str, *states: str) -> None:
    """As the timeline tells it to who cannot see it; in between there may be more."""
    story = ".*".join(re.escape(f"{state} from") for state in states)
    expect(lane(shown, path).get_by_role("img")).to_have_attribute("aria-label", re.compile(story))


@covers("B4")
def test_the_overview_shows_both_namespaces_of_a_pair(shown: Screen, beside: Screen) -> None:
    for one in (shown, beside):
        for name in ("contoso", "backup"):
            expect(one.panel(name).get_by_text("available", exact=True)).to_be_visible()
    expect(shown.panel("contoso")).to_contain_text("This namespace")
    expect(shown.panel("backup")).to_contain_text("Its partner")
    shown.go("pair")
    expect(shown.page.get_by_text("No entity has failed over.")).to_be_visible()
    expect(shown.page.get_by_label("Time shown")).to_be_visible()


@covers("B4", "N13", "N16", "B3")
def test_a_failover_is_seen_on_both_dashboards_from_its_first_failure_to_health(
    shown: Screen, beside: Screen, stage: Stage, namespace: RunningNamespace, backup: RunningNamespace, pair: Pair
) -> None:
    sender, other = pair.sender("orders"), pair.sender("bills")
    for one in (sender, other):
        one.send_messages(ServiceBusMessage("before"))
    both = (shown, beside)
    for one in both:
        one.go("pair")

    stage.call("PUT", "/$faults/drill", {"target": "entity/orders", "kind": "unavailable"})
    with pytest.raises(ServiceBusError):
        sender.send_messages(ServiceBusMessage("fails"))
    expect_story(shown, "orders", "failing")

    pair.events.wait_for(FailoverEngaged)
    divert(sender, 5)
    pair.events.wait_for(PingFailed)
    other.send_messages(ServiceBusMessage("as ever"))
    for one in both:
        expect_state(one, "orders", "pinging")
        expect(lane(one, "orders")).to_contain_text("5 diverted · 0 brought home · 5 waiting")
        expect(one.figure("Waiting")).to_have_text("5")
        expect(lane(one, "bills")).to_have_count(0)
    expect(lane(shown, "orders").get_by_role("link")).to_have_count(1)
    expect(lane(beside, "orders").get_by_role("link")).to_have_count(0)
    expect(shown.page.get_by_text("contoso is the primary; its partner is backup.")).to_be_visible()
    expect(beside.page.get_by_text("backup is the secondary; its partner is contoso.")).to_be_visible()
    shown.shot("pair-failed-over")

    stage.call("DELETE", "/$faults")
    pair.events.wait_for(EntityHealthy)
    for one in both:
        expect_state(one, "orders", "back")
    bring_home(namespace, backup)
    for one in both:
        expect(lane(one, "orders")).to_contain_text("5 diverted · 5 brought home · 0 waiting")
        expect_story(one, "orders", "failing", "pinging", "back", "syphoning", "back")
        expect(one.figure("Waiting")).to_have_text("0")
    for one in both:
        expect_state(one, "orders", "healthy", SOON_HEALTHY_MS)
    shown.shot("pair-healthy")
    for one in both:
        one.go("cost")
        bill = one.panel("What the failover cost")
        expect(bill.get_by_text("over", exact=True)).to_be_visible()
        expect(bill.get_by_role("row").filter(has_text="send to the backlog")).to_have_text(
            re.compile(r"backlog50\.0*[1-9]\d* USD")
        )
    shown.shot("cost-of-a-failover")


@covers("B4", "N16")
def test_while_the_primary_is_dead_the_secondary_tells_the_story(
    beside: Screen, namespace: RunningNamespace, pair: Pair
) -> None:
    sender = pair.sender("bills")
    sender.send_messages(ServiceBusMessage("before"))
    namespace.kill()
    divert(sender, 7)
    beside.go("pair")
    expect(lane(beside, "bills")).to_contain_text("7 diverted · 0 brought home · 7 waiting")
    expect_state(beside, "bills", "failed-over")
    expect(beside.page.get_by_text("contoso cannot be reached")).to_be_visible()
    expect(beside.page.get_by_text("this is what backup saw by itself")).to_be_visible()
    beside.shot("pair-primary-dead")
    beside.go("overview")
    expect(beside.panel("contoso").get_by_text("unreachable", exact=True)).to_be_visible()
    expect(beside.panel("backup").get_by_text("available", exact=True)).to_be_visible()
