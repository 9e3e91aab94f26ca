"""Requests and their answers, over a real connection."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tandembus import errors
from tandembus.descriptions import AuthorizationRule, QueueDescription
from tandembus.front_end.http.atom import ATOM, SERVICE_BUS
from tandembus.front_end.http.server import HEALTHY
from tandembus.front_end.http.statuses import STATUSES
from tandembus.limits import Limits
from tandembus.metering.slot import NORMAL, SEND
from tests.covers import covers
from tests.unit.front_end.http.harness import ROOT, Reply, RunningFrontEnd, running_front_end
from tests.unit.front_end.http.test_bad_xml import CASES

ENTRY_TYPE = "application/atom+xml;type=entry;charset=utf-8"
FEED_TYPE = "application/atom+xml;type=feed;charset=utf-8"


def queue_body(inner: str = "") -> str:
    return (
        f'<entry xmlns="{ATOM}"><content type="application/xml">'
        f'<QueueDescription xmlns="{SERVICE_BUS}">{inner}</QueueDescription></content></entry>'
    )


def refusal(reply: Reply) -> tuple[int, str]:
    """Code and detail, after a look at the form that every refusal has."""
    assert reply.headers["Content-Type"] == "application/xml;charset=utf-8"
    root = ElementTree.fromstring(reply.body)
    assert root.tag == "Error"
    assert root.findtext("Code") == str(reply.status)
    detail = root.findtext("Detail") or ""
    for part in ("SubCode=", "TrackingId:", "SystemTracker:contoso", "Timestamp:"):
        assert part in detail
    return reply.status, detail


async def test_a_queue_is_created_read_updated_and_deleted(front_end: RunningFrontEnd) -> None:
    created = await front_end.request("PUT", "/orders?api-version=2021-05", queue_body())
    assert (created.status, created.headers["Content-Type"]) == (201, ENTRY_TYPE)
    read = await front_end.request("GET", "/ORDERS?api-version=2021-05&enrich=false")
    assert (read.status, read.headers["Content-Type"]) == (200, ENTRY_TYPE)
    assert b"<title" in read.body
    changed = queue_body("<MaxDeliveryCount>3</MaxDeliveryCount>")
    updated = await front_end.request("PUT", "/Orders", changed, {"If-Match": "*"})
    assert updated.status == 200
    assert b"<MaxDeliveryCount>3</MaxDeliveryCount>" in updated.body
    assert b"/orders?" in updated.body
    deleted = await front_end.request("DELETE", "/orders")
    assert (deleted.status, deleted.body) == (200, b"")
    assert "Content-Type" not in deleted.headers
    assert refusal(await front_end.request("GET", "/orders"))[0] == 404


async def test_creating_a_queue_that_is_there_is_a_conflict(front_end: RunningFrontEnd) -> None:
    await front_end.request("PUT", "/orders", queue_body())
    status, detail = refusal(await front_end.request("PUT", "/Orders", queue_body()))
    assert status == 409
    assert "SubCode=40901" not in detail


async def test_updating_a_queue_that_is_not_there_is_not_found(front_end: RunningFrontEnd) -> None:
    status, detail = refusal(await front_end.request("PUT", "/orders", queue_body(), {"If-Match": "*"}))
    assert status == 404
    assert f"The messaging entity 'sb://127.0.0.1:{front_end.port}/orders' could not be found." in detail


async def test_an_if_match_other_than_the_star_is_refused(front_end: RunningFrontEnd) -> None:
    assert refusal(await front_end.request("PUT", "/orders", queue_body(), {"If-Match": '"1"'}))[0] == 400


@pytest.mark.parametrize("path", ["/a/b%20", "/a%2Fb", "/a/b", "/a%2fb/", "//a/b"])
async def test_a_name_with_a_slash_may_come_encoded_or_not(front_end: RunningFrontEnd, path: str) -> None:
    await front_end.namespace.create_queue(QueueDescription("a/b"))
    reply = await front_end.request("GET", path)
    assert reply.status == (404 if "%20" in path else 200)


async def test_lists_are_paged_with_the_next_link_second(front_end: RunningFrontEnd) -> None:
    for number in range(250):
        await front_end.namespace.create_queue(QueueDescription(f"queue-{number:03d}"))
    titles: list[str] = []
    path: str | None = "/$Resources/queues?api-version=2021-05&$skip=0&$top=100"
    pages = 0
    while path is not None:
        reply = await front_end.request("GET", path)
        assert (reply.status, reply.headers["Content-Type"]) == (200, FEED_TYPE)
        feed = ElementTree.fromstring(reply.body)
        links = feed.findall(f"{{{ATOM}}}link")
        titles += [entry.findtext(f"{{{ATOM}}}title") or "" for entry in feed.findall(f"{{{ATOM}}}entry")]
        path = links[1].attrib["href"].partition(str(front_end.port))[2] if len(links) == 2 else None
        pages += 1
    assert pages == 3
    assert titles == [f"queue-{number:03d}" for number in range(250)]


@pytest.mark.parametrize(
    ("query", "count", "has_next"),
    [
        ("", 100, True),
        ("?$top=1000", 100, True),
        ("?%24skip=249&%24top=100", 1, False),
        ("?$skip=150", 100, False),
        ("?$skip=149", 100, True),
        ("?$skip=250", 0, False),
        ("?$skip=99999999999", 0, False),
        ("?$top=1", 1, True),
    ],
)
async def test_a_page_has_at_most_a_hundred_entries(
    front_end: RunningFrontEnd, query: str, count: int, has_next: bool
) -> None:
    for number in range(250):
        await front_end.namespace.create_queue(QueueDescription(f"queue-{number:03d}"))
    feed = ElementTree.fromstring((await front_end.request("GET", "/$Resources/queues" + query)).body)
    assert len(feed.findall(f"{{{ATOM}}}entry")) == count
    assert len(feed.findall(f"{{{ATOM}}}link")) == (2 if has_next else 1)


@pytest.mark.parametrize("query", ["$top=0", "$skip=-1", "$top=x", "$skip=1.5", "$top=" + "9" * 50])
async def test_a_page_that_makes_no_sense_is_refused(front_end: RunningFrontEnd, query: str) -> None:
    assert refusal(await front_end.request("GET", f"/$Resources/queues?{query}"))[0] == 400


async def test_the_namespace_describes_itself(front_end: RunningFrontEnd) -> None:
    reply = await front_end.request("GET", "/$namespaceinfo?api-version=2021-05")
    assert (reply.status, reply.headers["Content-Type"]) == (200, ENTRY_TYPE)
    info = ElementTree.fromstring(reply.body).find(f"{{{ATOM}}}content/{{{SERVICE_BUS}}}NamespaceInfo")
    assert info is not None
    found = {child.tag.partition("}")[2]: child.text for child in info}
    assert found == {
        "CreatedTime": "2020-09-13T12:26:40Z",
        "MessagingSKU": "Standard",
        "ModifiedTime": "2020-09-13T12:26:40Z",
        "Name": "contoso",
        "NamespaceType": "Messaging",
    }


async def test_a_namespace_with_large_messages_says_premium(tmp_path: Path) -> None:
    async with running_front_end(tmp_path, limits=Limits(max_message_size_bytes=1024 * 1024)) as running:
        text = (await running.request("GET", "/$namespaceinfo")).text
    assert "<MessagingSKU>Premium</MessagingSKU><MessagingUnits>1</MessagingUnits>" in text


@pytest.mark.parametrize(
    ("version", "status"),
    [("2013-08", 400), ("2012-03", 400), ("2013-10", 201), ("2021-05", 201), ("2024-05", 201)],
)
@covers("P7")
async def test_partitioning_needs_an_api_version_that_knows_of_it(
    front_end: RunningFrontEnd, version: str, status: int
) -> None:
    body = queue_body("<EnablePartitioning>true</EnablePartitioning>")
    reply = await front_end.request("PUT", f"/orders?api-version={version}", body)
    assert reply.status == status
    assert (b"2013-10 or later" in reply.body) == (status == 400)


@pytest.mark.parametrize("version", ["", "api-version=", "api-version=2017-04", "api-version=2099-01"])
async def test_any_api_version_or_none_will_do_otherwise(front_end: RunningFrontEnd, version: str) -> None:
    reply = await front_end.request("PUT", f"/orders?{version}", queue_body())
    assert reply.status == (400 if version == "api-version=" else 201)


async def test_authorization_rules_get_their_times_and_missing_keys_from_us(
    front_end: RunningFrontEnd,
) -> None:
    rule = (
        "<AuthorizationRules><AuthorizationRule><Rights><AccessRights>Send</AccessRights></Rights>"
        "<CreatedTime>1999-01-01T00:00:00Z</CreatedTime><KeyName>s</KeyName>{}</AuthorizationRule></AuthorizationRules>"
    )
    await front_end.request("PUT", "/orders", queue_body(rule.format("<PrimaryKey>abc-key-12345678</PrimaryKey>")))
    made = the_rule(front_end)
    assert (made.key_name, made.primary_key, made.rights) == ("s", "abc-key-12345678", frozenset(["Send"]))
    assert len(made.secondary_key) >= 40
    assert made.created_at > 1_600_000_000
    await front_end.request("PUT", "/orders", queue_body(rule.format("")), {"If-Match": "*"})
    changed = the_rule(front_end)
    assert changed.created_at == made.created_at
    assert changed.modified_at > made.modified_at
    assert changed.primary_key != "abc-key-12345678"


async def test_an_update_that_does_not_speak_of_rules_keeps_them_and_an_empty_list_removes_them(
    front_end: RunningFrontEnd,
) -> None:
    rule = (
        "<AuthorizationRules><AuthorizationRule><Rights><AccessRights>Send</AccessRights></Rights>"
        "<KeyName>s</KeyName><PrimaryKey>abc-key-12345678</PrimaryKey></AuthorizationRule></AuthorizationRules>"
    )
    await front_end.request("PUT", "/orders", queue_body(rule))
    made = the_rule(front_end)
    await front_end.request("PUT", "/orders", queue_body(), {"If-Match": "*"})
    assert the_rule(front_end) == made
    await front_end.request("PUT", "/orders", queue_body("<AuthorizationRules/>"), {"If-Match": "*"})
    queue = front_end.namespace.catalog.find_queue("orders")
    assert queue is not None
    assert queue.description.authorization_rules == ()


def the_rule(front_end: RunningFrontEnd) -> AuthorizationRule:
    queue = front_end.namespace.catalog.find_queue("orders")
    assert queue is not None
    (rule,) = queue.description.authorization_rules
    return rule


@pytest.mark.parametrize("kind", list(STATUSES))
async def test_whatever_the_namespace_refuses_gets_its_status_from_the_table(
    front_end: RunningFrontEnd, kind: type[errors.BusError]
) -> None:
    front_end.namespace.failure = kind("no <such> luck")
    reply = await front_end.request("PUT", "/orders", queue_body())
    status, detail = refusal(reply)
    assert status == STATUSES[kind].code
    assert f"no <such> luck SubCode={STATUSES[kind].sub_code}." in detail
    assert reply.headers.get("Retry-After") == ("10" if kind is errors.ServerBusy else None)


async def test_a_change_that_was_made_is_told_as_made_when_messages_cannot_be_counted(
    front_end: RunningFrontEnd,
) -> None:
    front_end.namespace.counting_failure = errors.StoreUnavailable("the store is out")
    assert (await front_end.request("PUT", "/orders", queue_body())).status == 201
    changed = await front_end.request("PUT", "/orders", queue_body(), {"If-Match": "*"})
    assert (changed.status, b">Limited</EntityAvailabilityStatus>" in changed.body) == (200, True)
    assert b"<MessageCount>-1</MessageCount>" in changed.body
    assert (await front_end.request("GET", "/orders")).status == 503
    assert (await front_end.request("DELETE", "/orders")).status == 200


async def test_a_queue_deleted_while_its_page_is_made_keeps_its_place_on_the_page(front_end: RunningFrontEnd) -> None:
    for number in range(3):
        await front_end.namespace.create_queue(QueueDescription(f"queue-{number}"))
    front_end.namespace.counting_failure = errors.EntityNotFound("gone")
    assert (await front_end.request("GET", "/$Resources/queues")).body.count(b"<entry>") == 3


async def test_a_fault_of_ours_is_a_500_that_tells_nothing_of_the_inside(front_end: RunningFrontEnd) -> None:
    front_end.namespace.failure = KeyError("secret")
    reply = await front_end.request("PUT", "/orders", queue_body())
    assert refusal(reply)[0] == 500
    assert b"secret" not in reply.body
    assert b"Traceback" not in reply.body


async def test_a_method_that_makes_no_sense_names_those_that_do(front_end: RunningFrontEnd) -> None:
    reply = await front_end.request("POST", "/orders")
    assert refusal(reply)[0] == 405
    assert reply.headers["Allow"] == "GET, PUT, DELETE"
    reply = await front_end.request("DELETE", "/$Resources/queues")
    assert (reply.status, reply.headers["Allow"]) == (405, "GET")


@pytest.mark.parametrize("path", ["/", "/$metadata", "/$Resources/relays", "/$Resources", "/nobody/here", "/a%00b"])
async def test_other_addresses_lead_nowhere(front_end: RunningFrontEnd, path: str) -> None:
    assert refusal(await front_end.request("GET", path))[0] == 404


@pytest.mark.parametrize("path", ["/../../etc/passwd", "/orders/../invoices", "/%2e%2e", "/orders/%2E%2E/invoices"])
async def test_no_claim_covers_an_address_with_dots_for_segments(front_end: RunningFrontEnd, path: str) -> None:
    for name in ("orders", "invoices"):
        await front_end.namespace.create_queue(QueueDescription(name))
    assert refusal(await front_end.request("GET", path))[0] == 401


async def test_an_address_that_is_not_utf_8_is_refused(front_end: RunningFrontEnd) -> None:
    assert refusal(await front_end.request("GET", "/a%FFb"))[0] == 400


async def test_health_says_whether_it_is_ready_to_anybody(front_end: RunningFrontEnd) -> None:
    ready = await front_end.request("GET", "/health", token=None)
    assert (ready.status, ready.text) == (200, HEALTHY)
    front_end.is_ready = False
    assert (await front_end.request("GET", "/health", token=None)).status == 503
    assert (await front_end.request("HEAD", "/health", token=None)).status == 503
    assert (await front_end.request("POST", "/health", token=None)).status == 405


@pytest.mark.parametrize(
    ("is_ready", "serves_a_store", "failing"),
    [
        (True, True, []),
        (True, False, ["ready"]),
        (False, True, ["ready"]),
        (False, False, ["ready"]),
    ],
)
async def test_probes_end_traffic_without_a_store_and_during_a_stop_and_never_the_process(
    front_end: RunningFrontEnd, is_ready: bool, serves_a_store: bool, failing: list[str]
) -> None:
    front_end.is_ready = is_ready
    front_end.serves_a_store = serves_a_store
    answers = {
        probe: (await front_end.request("GET", f"/health/{probe}", token=None)).status
        for probe in ("live", "startup", "ready")
    }
    assert answers == {"live": 200, "startup": 200, "ready": 200} | dict.fromkeys(failing, 503)


async def test_a_queue_may_be_called_health_all_the_same(front_end: RunningFrontEnd) -> None:
    await front_end.request("PUT", "/health", queue_body())
    assert b"QueueDescription" in (await front_end.request("GET", "/health")).body
    assert (await front_end.request("GET", "/health", token=None)).text == HEALTHY
    await front_end.request("PUT", "/health/live", queue_body())
    assert b"QueueDescription" in (await front_end.request("GET", "/health/live")).body


async def test_the_live_counters_are_json(front_end: RunningFrontEnd) -> None:
    front_end.meter.count("orders", SEND, NORMAL, 2, 3, 100_000)
    await front_end.request("GET", "/$namespaceinfo")
    reply = await front_end.request("GET", "/tandembus/meter")
    assert (reply.status, reply.headers["Content-Type"]) == (200, "application/json;charset=utf-8")
    document = json.loads(reply.body)
    assert (document["namespace"], document["gap"], document["row_count"]) == ("contoso", None, 2)
    assert document["since_start"][1] == {
        "entity": "orders",
        "operation": "send",
        "reason": "normal",
        "calls": 1,
        "messages": 2,
        "operations": 3,
        "bytes": 100_000,
    }
    assert [row["operation"] for row in document["cumulative"]] == ["manage", "send"]
    narrowed = json.loads((await front_end.request("GET", "/tandembus/meter?entity=Orders&top=1")).body)
    assert [row["entity"] for row in narrowed["since_start"]] == ["orders"]
    assert refusal(await front_end.request("GET", "/tandembus/meter?top=0"))[0] == 400
    assert refusal(await front_end.request("GET", "/tandembus/meter", token=None))[0] == 401


async def test_the_address_of_the_counters_cannot_become_a_queue(front_end: RunningFrontEnd) -> None:
    assert refusal(await front_end.request("PUT", "/Tandembus/Meter", queue_body()))[0] == 400


async def test_every_call_of_the_administration_is_one_operation_of_its_entity(
    front_end: RunningFrontEnd,
) -> None:
    await front_end.request("PUT", "/orders", queue_body())
    await front_end.request("GET", "/ORDERS")
    await front_end.request("PUT", "/orders", queue_body("<Status>?</Status>"), {"If-Match": "*"})
    await front_end.request("GET", "/nobody")
    await front_end.request("GET", "/$Resources/queues")
    await front_end.request("GET", "/$namespaceinfo")
    await front_end.request("GET", "/health", token=None)
    await front_end.request("GET", "/orders", token=None)
    await front_end.request("GET", "/tandembus/meter")
    rows = {row.entity: (row.count.calls, row.count.operations) for row in front_end.meter.totals().since_start}
    assert rows == {"orders": (3, 3), "": (3, 3)}
    await front_end.request("DELETE", "/orders")
    assert front_end.meter.totals().cumulative[("manage", "normal")].operations == 7


@covers("F14")
@pytest.mark.parametrize(
    "name",
    [
        "billion laughs",
        "external general entity, http",
        "depth 100,000",
        "10 MB of text",
        "is EBCDIC",
        "empty",
    ],
)
async def test_bad_xml_is_refused_over_http_and_the_next_request_works(front_end: RunningFrontEnd, name: str) -> None:
    status, _ = refusal(await front_end.request("PUT", "/orders", CASES[name]))
    assert status == (413 if len(CASES[name]) > Limits().max_management_body_bytes else 400)
    assert (await front_end.request("PUT", "/orders", queue_body())).status == 201


async def test_no_answer_has_a_version_banner_or_opens_the_door_to_other_sites(
    front_end: RunningFrontEnd,
) -> None:
    for reply in (
        await front_end.request("GET", "/$namespaceinfo", headers={"Origin": "https://evil.example"}),
        await front_end.request("GET", "/nobody"),
        await front_end.request("GET", "/health", token=None),
        await front_end.request("OPTIONS", "/orders", headers={"Origin": "https://evil.example"}, token=None),
    ):
        assert reply.headers["Server"] == "tandembus"
        assert reply.headers["X-Content-Type-Options"] == "nosniff"
        assert reply.headers["Cache-Control"] == "no-store"
        assert not [name for name in reply.headers if name.lower().startswith("access-control")]
    bad = await front_end.raw(b"GARBAGE\r\n\r\n")
    assert b"Server: tandembus\r\n" in bad
    assert b"aiohttp" not in bad
    assert b"<Error><Code>400</Code>" in bad


def test_the_root_policy_has_its_customary_name() -> None:
    assert ROOT == "RootManageSharedAccessKey"
