"""One entity as it lives: its fragments one by one, and figures that move while applications send."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from playwright.sync_api import Locator, expect

from tests.covers import covers
from tests.dashboard.screens import Screen
from tests.dashboard.stage import Stage
from tests.integration.serving import RunningNamespace, serving

FRAGMENTS = 16
STORES = 2


@pytest.fixture(scope="module")
def namespace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNamespace]:
    folder: Path = tmp_path_factory.mktemp("namespace")
    with serving(folder, "--name", "contoso", "--stores", str(STORES)) as running:
        yield running


@pytest.fixture(scope="module", autouse=True)
def entities(stage: Stage) -> None:
    stage.make("parts", enable_partitioning=True)
    stage.make("plain")
    stage.make("news", "topic")
    for index in range(32):
        stage.send("parts", "x" * 50, partition_key=f"key-{index}")


def cells(shown: Screen) -> Locator:
    return shown.page.get_by_role("list", name="Fragments").get_by_role("listitem")


@covers("B4", "P19")
def test_a_partitioned_queue_is_a_map_of_16_fragments_with_their_places_and_depths(shown: Screen, stage: Stage) -> None:
    shown.go("entity?path=parts")
    expect(cells(shown)).to_have_count(FRAGMENTS)
    told = stage.entity("parts")["fragments"]
    for cell, fragment in zip(cells(shown).all(), told, strict=True):
        expect(cell.locator(".depth")).to_have_text(str(fragment["active"]))
        expect(cell.locator(".where")).to_contain_text(f"broker {fragment['broker']}store {fragment['store']}")
    assert sum(one["active"] for one in told) == 32
    expect(shown.figure("Active")).to_have_text("32")
    expect(shown.page.get_by_text("\u00d7 the mean")).to_be_visible()
    expect(shown.page.get_by_text("All fragments lie in one messaging store")).to_have_count(0)


@covers("B4")
def test_a_plain_queue_is_one_fragment_and_a_topic_tells_of_its_subscriptions(shown: Screen) -> None:
    shown.go("entity?path=plain")
    expect(cells(shown)).to_have_count(1)
    shown.go("entity?path=news")
    expect(shown.figure("Subscriptions")).to_have_text("0")
    shown.page.get_by_role("link", name="Subscriptions", exact=True).click()
    expect(shown.page.get_by_text("Nobody subscribes")).to_be_visible()


@covers("B4", "P19", "B3")
def test_a_fragment_that_is_out_makes_the_entity_limited_and_its_cell_says_so(shown: Screen, stage: Stage) -> None:
    shown.go("entity?path=parts")
    title = shown.page.locator(".title")
    expect(title.get_by_text("Available", exact=True)).to_be_visible()
    depth = stage.entity("parts")["fragments"][5]["active"]
    stage.call("PUT", "/$faults/one", {"target": "fragment/parts/5", "kind": "unavailable"})
    expect(title.get_by_text("Limited", exact=True)).to_be_visible()
    fifth = cells(shown).nth(5)
    expect(fifth).to_contain_text("unavailable")
    expect(shown.page.locator(".fragment.out")).to_have_count(1)
    expect(shown.page.get_by_text("Fragment 5 cannot be used now")).to_be_visible()
    expect(fifth.locator(".depth")).to_have_text("unknown")
    left = 32 - depth
    expect(shown.figure("Active")).to_have_text(f"at least {left}")
    shown.shot("entity-limited")
    shown.go("entities?search=parts")
    expect(shown.row("Entities", "parts")).to_contain_text(f"at least {left}")
    shown.go("entity?path=parts")
    stage.call("DELETE", "/$faults/one")
    expect(title.get_by_text("Available", exact=True)).to_be_visible()
    expect(shown.page.locator(".fragment.out")).to_have_count(0)


@covers("B4", "P19", "B3")
def test_what_cannot_be_counted_is_unknown_and_not_0(shown: Screen, stage: Stage) -> None:
    stage.call("PUT", "/$faults/one", {"target": "entity/plain", "kind": "unavailable"})
    shown.go("entity?path=plain")
    for label in ("Active", "Dead letters", "Scheduled", "Size"):
        expect(shown.figure(label)).to_have_text("unknown")
    shown.go("entities?search=plain")
    row = shown.row("Entities", "plain")
    expect(row).to_contain_text("Limited")
    expect(row.get_by_text("unknown")).to_have_count(4)
    shown.go("overview")
    expect(shown.figure("Active")).to_have_text("at least 32")
    stage.call("DELETE", "/$faults/one")
    expect(shown.figure("Active")).to_have_text("32")


@covers("B4", "P19", "B3")
def test_a_store_that_is_out_marks_its_fragments_here_in_the_list_and_on_the_overview(
    shown: Screen, stage: Stage
) -> None:
    lost = [one["index"] for one in stage.entity("parts")["fragments"] if one["store"] == 1]
    stage.call("PUT", "/$faults/disk", {"target": "store/1", "kind": "unavailable"})
    shown.go("entity?path=parts")
    expect(shown.page.locator(".fragment.out")).to_have_count(len(lost))
    expect(shown.page.get_by_text(f"{len(lost)} fragments cannot be used now")).to_be_visible()
    shown.go("entities?search=parts")
    expect(shown.row("Entities", "parts")).to_contain_text("Limited")
    shown.go("overview")
    expect(shown.panel("contoso").get_by_text("limited", exact=True)).to_be_visible()
    expect(shown.figure("Stores")).to_have_text("1 of 2")
    stage.call("DELETE", "/$faults/disk")
    expect(shown.panel("contoso").get_by_text("available", exact=True)).to_be_visible()


def drawing(shown: Screen, name: str) -> str:
    """What stands in a chart, as a picture."""
    picture: str = shown.page.get_by_role("img", name=name).locator("canvas").evaluate("(canvas) => canvas.toDataURL()")
    return picture


@covers("B4")
def test_counts_rates_and_charts_move_while_an_application_sends(shown: Screen, namespace: RunningNamespace) -> None:
    shown.go("entity?path=plain")
    expect(shown.figure("Active")).to_have_text("0")
    before = drawing(shown, "Messages in plain")
    with (
        ServiceBusClient.from_connection_string(namespace.connection_string) as client,
        client.get_queue_sender("plain") as sender,
    ):
        for sent in (10, 20, 30):
            sender.send_messages([ServiceBusMessage("x") for _ in range(10)])
            expect(shown.figure("Active")).to_have_text(str(sent))
        expect(shown.figure("In")).not_to_have_text("0/s")
        expect(shown.panel("Now")).to_contain_text("30 in all")
    assert drawing(shown, "Messages in plain") != before
    with (
        ServiceBusClient.from_connection_string(namespace.connection_string) as client,
        client.get_queue_receiver("plain") as receiver,
    ):
        expect(shown.figure("Receivers")).to_have_text("1")
        taken = receiver.receive_messages(max_message_count=30, max_wait_time=10)
        for message in taken:
            receiver.complete_message(message)
    expect(shown.figure("Active")).to_have_text(str(30 - len(taken)))


@covers("B4")
def test_an_entity_that_was_deleted_elsewhere_is_told_as_gone(shown: Screen, stage: Stage) -> None:
    shown.expected_statuses.add(404)
    stage.make("short-lived")
    shown.go("entity?path=short-lived")
    expect(cells(shown)).to_have_count(1)
    stage.call("DELETE", "/$api/entity?path=short-lived")
    expect(shown.page.get_by_role("alert")).to_be_visible()
    expect(shown.button("Send message")).to_have_count(0)
