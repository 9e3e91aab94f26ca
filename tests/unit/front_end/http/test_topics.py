"""Administration of topics, subscriptions and rules, over a real connection."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from tandembus.descriptions import (
    CorrelationFilter,
    QueueDescription,
    RuleDescription,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
    TrueFilter,
)
from tandembus.front_end.http.atom import ATOM, INSTANCE, SERVICE_BUS
from tandembus.metering.slot import SEND
from tests.covers import covers
from tests.unit.front_end.http.harness import Reply, RunningFrontEnd
from tests.unit.front_end.http.test_messages import TEXT, told
from tests.unit.front_end.http.test_server import ENTRY_TYPE, FEED_TYPE, queue_body, refusal

SQL = '<Filter xsi:type="SqlFilter"><SqlExpression>%s</SqlExpression></Filter>'
PARTITIONED = "<EnablePartitioning>true</EnablePartitioning>"


def body(kind: str, inner: str = "") -> str:
    return (
        f'<entry xmlns="{ATOM}" xmlns:xsi="{INSTANCE}"><content type="application/xml">'
        f'<{kind}Description xmlns="{SERVICE_BUS}">{inner}</{kind}Description></content></entry>'
    )


async def made(front_end: RunningFrontEnd, *subscriptions: str) -> None:
    await front_end.namespace.create_topic(TopicDescription("events"))
    for name in subscriptions:
        await front_end.namespace.create_subscription(SubscriptionDescription("events", name))


def titles(reply: Reply) -> list[str]:
    assert (reply.status, reply.headers["Content-Type"]) == (200, FEED_TYPE)
    feed = ElementTree.fromstring(reply.body)
    return [entry.findtext(f"{{{ATOM}}}title") or "" for entry in feed.findall(f"{{{ATOM}}}entry")]


def ids(reply: Reply) -> list[str]:
    return [
        (found.text or "").partition("?")[0].partition("//")[2].partition("/")[2]
        for found in ElementTree.fromstring(reply.body).iter(f"{{{ATOM}}}id")
    ]


@covers("B1", "M9")
async def test_a_topic_that_is_damaged_does_not_hide_the_others(front_end: RunningFrontEnd) -> None:
    await made(front_end, "audit")
    await front_end.namespace.create_topic(TopicDescription("news"))
    front_end.namespace.catalog._directory.incomplete_topics.add("events")
    assert titles(await front_end.request("GET", "/$Resources/topics")) == ["events", "news"]
    assert titles(await front_end.request("GET", "/events/subscriptions")) == ["audit"]
    assert (await front_end.request("GET", "/events")).status == 500
    assert (await front_end.request("DELETE", "/events")).status == 200


@covers("B1", "M9")
async def test_a_topic_is_created_read_updated_and_deleted(front_end: RunningFrontEnd) -> None:
    created = await front_end.request("PUT", "/Events", body("Topic"))
    assert (created.status, created.headers["Content-Type"]) == (201, ENTRY_TYPE)
    read = await front_end.request("GET", "/events?enrich=false")
    assert (read.status, ids(read)) == (200, ["Events"])
    assert b"<SubscriptionCount>0</SubscriptionCount>" in read.body
    changed = body("Topic", "<UserMetadata>x</UserMetadata>")
    updated = await front_end.request("PUT", "/events", changed, {"If-Match": "*"})
    assert (updated.status, b"<UserMetadata>x</UserMetadata>" in updated.body) == (200, True)
    assert titles(await front_end.request("GET", "/$Resources/topics")) == ["Events"]
    assert titles(await front_end.request("GET", "/$Resources/queues")) == []
    assert (await front_end.request("DELETE", "/EVENTS")).status == 200
    assert refusal(await front_end.request("GET", "/events"))[0] == 404


@covers("B1", "M9")
@pytest.mark.parametrize(
    ("topic", "subscription"),
    [("/a/b/subscriptions", "/audit"), ("/a%2Fb/Subscriptions/", "audit"), ("/A/b/SUBSCRIPTIONS", "/Audit/")],
)
async def test_a_subscription_is_created_read_updated_and_deleted(
    front_end: RunningFrontEnd, topic: str, subscription: str
) -> None:
    await front_end.namespace.create_topic(TopicDescription("a/b"))
    path = topic + subscription
    created = await front_end.request("PUT", path, body("Subscription", "<MaxDeliveryCount>3</MaxDeliveryCount>"))
    assert created.status == 201
    read = await front_end.request("GET", "/A/B/Subscriptions/AUDIT")
    assert ids(read) == [f"a/b/Subscriptions/{path.strip('/').rpartition('/')[2]}"]
    assert b"<MaxDeliveryCount>3</MaxDeliveryCount>" in read.body
    changed = body("Subscription", "<LockDuration>PT30S</LockDuration>")
    assert (await front_end.request("PUT", path, changed, {"If-Match": "*"})).status == 200
    listed = await front_end.request("GET", topic)
    assert [title.lower() for title in titles(listed)] == ["audit"]
    assert b"<LockDuration>PT30S</LockDuration><RequiresSession>" in listed.body
    assert b"<SubscriptionCount>1</SubscriptionCount>" in (await front_end.request("GET", "/a/b")).body
    assert (await front_end.request("DELETE", path)).status == 200
    assert refusal(await front_end.request("GET", path))[0] == 404
    assert titles(await front_end.request("GET", topic)) == []


@covers("B1", "M9")
async def test_a_rule_is_created_read_updated_and_deleted(front_end: RunningFrontEnd) -> None:
    await made(front_end, "audit")
    path = "/events/subscriptions/audit/rules/Big%20ones"
    created = await front_end.request("PUT", path, body("Rule", SQL % "size &gt; 5"))
    assert (created.status, ids(created)) == (201, ["events/Subscriptions/audit/Rules/Big%20ones"])
    read = await front_end.request("GET", path.lower())
    assert b"<SqlExpression>size &gt; 5</SqlExpression>" in read.body
    updated = await front_end.request("PUT", path, body("Rule", SQL % "size &gt; 6"), {"If-Match": "*"})
    assert (updated.status, b"size &gt; 6" in updated.body) == (200, True)
    listed = await front_end.request("GET", "/events/Subscriptions/audit/Rules/")
    assert titles(listed) == ["$Default", "Big ones"]
    assert b"<SqlFilterCount>2</SqlFilterCount>" in (await front_end.request("GET", "/events")).body
    assert (await front_end.request("DELETE", path)).status == 200
    assert refusal(await front_end.request("GET", path))[0] == 404
    assert (await front_end.request("DELETE", "/events/subscriptions/audit/rules/$default")).status == 200
    assert titles(await front_end.request("GET", "/events/subscriptions/audit/rules")) == []


@covers("M9")
async def test_a_subscription_begins_with_the_rule_that_it_is_created_with(front_end: RunningFrontEnd) -> None:
    await made(front_end)
    rule = f"<DefaultRuleDescription>{SQL % 'a = 1'}<Name>mine</Name></DefaultRuleDescription>"
    assert (await front_end.request("PUT", "/events/subscriptions/s", body("Subscription", rule))).status == 201
    assert front_end.namespace.rules("events", "s")[0].filter == SqlFilter("a = 1")
    assert titles(await front_end.request("GET", "/events/subscriptions/s/rules")) == ["mine"]
    bad = f"<DefaultRuleDescription>{SQL % 'a = ='}</DefaultRuleDescription>"
    assert refusal(await front_end.request("PUT", "/events/subscriptions/t", body("Subscription", bad)))[0] == 400
    assert refusal(await front_end.request("GET", "/events/subscriptions/t"))[0] == 404


@covers("B1")
async def test_names_that_look_like_parts_of_an_address_are_told_from_them(front_end: RunningFrontEnd) -> None:
    await front_end.namespace.create_topic(TopicDescription("subscriptions"))
    path = "/subscriptions/subscriptions/subscriptions"
    assert (await front_end.request("PUT", path, body("Subscription"))).status == 201
    for rule in ("rules", "subscriptions"):
        assert (await front_end.request("PUT", f"{path}/rules/{rule}", body("Rule", SQL % "a=1"))).status == 201
    assert titles(await front_end.request("GET", f"{path}/rules")) == ["$Default", "rules", "subscriptions"]
    assert titles(await front_end.request("GET", "/subscriptions/subscriptions")) == ["subscriptions"]
    assert (await front_end.request("GET", "/subscriptions")).status == 200


@covers("B1")
async def test_lists_are_paged_with_the_next_link_second(front_end: RunningFrontEnd) -> None:
    await made(front_end, *[f"s{number:02}" for number in range(12)])
    for number in range(12):
        await front_end.namespace.create_rule("events", "s00", RuleDescription(f"r{number:02}", TrueFilter()))
        await front_end.namespace.create_topic(TopicDescription(f"t{number:02}"))
    for path, count in (
        ("/$Resources/topics", 13),
        ("/events/subscriptions", 12),
        ("/events/Subscriptions/s00/Rules", 13),
    ):
        found: list[str] = []
        next_path: str | None = f"{path}?$skip=0&$top=5"
        while next_path is not None:
            reply = await front_end.request("GET", next_path)
            found += titles(reply)
            links = ElementTree.fromstring(reply.body).findall(f"{{{ATOM}}}link")
            next_path = links[1].attrib["href"].partition(str(front_end.port))[2] if len(links) == 2 else None
        assert (len(found), sorted(found)) == (count, found)


@covers("B1")
async def test_what_is_there_already_is_a_conflict(front_end: RunningFrontEnd) -> None:
    await made(front_end, "audit")
    for path, document in (
        ("/Events", body("Topic")),
        ("/events", queue_body()),
        ("/events/subscriptions/AUDIT", body("Subscription")),
        ("/events/subscriptions/audit/rules/$DEFAULT", body("Rule", SQL % "a=1")),
    ):
        status, detail = refusal(await front_end.request("PUT", path, document))
        assert (status, "SubCode=40901" in detail) == (409, False)
    await front_end.namespace.create_queue(QueueDescription("orders"))
    assert refusal(await front_end.request("PUT", "/orders", body("Topic")))[0] == 409


@covers("B1")
async def test_what_is_not_there_is_not_found(front_end: RunningFrontEnd) -> None:
    await made(front_end, "audit")
    await front_end.namespace.create_queue(QueueDescription("orders"))
    for method, path in (
        ("GET", "/nobody/subscriptions"),
        ("GET", "/orders/subscriptions"),
        ("GET", "/events/subscriptions/nobody"),
        ("DELETE", "/events/subscriptions/nobody"),
        ("GET", "/events/subscriptions/nobody/rules"),
        ("GET", "/events/subscriptions/audit/rules/nobody"),
        ("DELETE", "/events/subscriptions/audit/rules/nobody"),
        ("GET", "/events/subscriptions/audit/messages"),
        ("GET", "/events/subscriptions/audit/rules/a/b"),
        ("GET", "/events/subscriptions/audit/other/a"),
    ):
        assert refusal(await front_end.request(method, path))[0] == 404, path
    for path, document in (
        ("/nobody/subscriptions/s", body("Subscription")),
        ("/nobody/subscriptions/s/rules/r", body("Rule")),
        ("/events/subscriptions/nobody/rules/r", body("Rule")),
    ):
        assert refusal(await front_end.request("PUT", path, document))[0] == 404, path
        assert refusal(await front_end.request("PUT", path, document, {"If-Match": "*"}))[0] == 404, path
    for path, document in (
        ("/nobody", body("Topic")),
        ("/events/subscriptions/nobody", body("Subscription")),
        ("/events/subscriptions/audit/rules/nobody", body("Rule")),
    ):
        assert refusal(await front_end.request("PUT", path, document, {"If-Match": "*"}))[0] == 404, path


@covers("B1")
@pytest.mark.parametrize(
    ("path", "document"),
    [
        ("/new", body("Subscription")),
        ("/new", body("Rule")),
        ("/events/subscriptions/new", body("Topic")),
        ("/events/subscriptions/new", queue_body()),
        ("/events/subscriptions/new", body("Rule")),
        ("/events/subscriptions/audit/rules/new", body("Subscription")),
        ("/events/subscriptions/audit/rules/new", body("Rule", SQL % "a = = 1")),
        ("/events/subscriptions/audit/rules/new", body("Rule", SQL % ("a = 1 " * 300))),
        ("/events/subscriptions/audit/rules/new", body("Rule", '<Filter xsi:type="CorrelationFilter"/>')),
        ("/events/subscriptions/audit/rules/" + "r" * 51, body("Rule")),
        ("/events/subscriptions/audit/rules/a%3Fb", body("Rule")),
        ("/events/subscriptions/" + "s" * 51, body("Subscription")),
        ("/events/subscriptions/a%20b", body("Subscription")),
        ("/" + "t" * 261, body("Topic")),
        ("/new", body("Topic", f"{PARTITIONED}<MaxSizeInMegabytes>16384</MaxSizeInMegabytes>")),
        ("/new", body("Topic", "<MaxSizeInMegabytes>7</MaxSizeInMegabytes>")),
        ("/new", body("Topic", "<AutoDeleteOnIdle>PT4M</AutoDeleteOnIdle>")),
        ("/new", body("Topic", "<MaxMessageSizeInKilobytes>512</MaxMessageSizeInKilobytes>")),
        ("/events/subscriptions/new", body("Subscription", "<LockDuration>PT6M</LockDuration>")),
        ("/events/subscriptions/new", body("Subscription", "<ForwardTo>nobody</ForwardTo>")),
        ("/events/subscriptions/new", body("Subscription", "<MaxDeliveryCount>0</MaxDeliveryCount>")),
    ],
)
async def test_what_makes_no_sense_is_refused_and_leaves_nothing(
    front_end: RunningFrontEnd, path: str, document: str
) -> None:
    await made(front_end, "audit")
    version = front_end.namespace.catalog.version
    assert refusal(await front_end.request("PUT", path, document))[0] == 400
    assert front_end.namespace.catalog.version == version


@covers("B1")
async def test_what_is_fixed_at_creation_cannot_be_updated(front_end: RunningFrontEnd) -> None:
    await made(front_end, "audit")
    for path, document in (
        ("/events", body("Topic", "<RequiresDuplicateDetection>true</RequiresDuplicateDetection>")),
        ("/events", body("Topic", PARTITIONED)),
        ("/events/subscriptions/audit", body("Subscription", "<RequiresSession>true</RequiresSession>")),
        ("/events", queue_body()),
    ):
        assert refusal(await front_end.request("PUT", path, document, {"If-Match": "*"}))[0] == 400
    assert refusal(await front_end.request("PUT", "/events", body("Topic"), {"If-Match": '"7"'}))[0] == 400


async def test_partitioning_needs_a_version_that_knows_it_and_says_so(front_end: RunningFrontEnd) -> None:
    document = body("Topic", PARTITIONED)
    assert "2013-10" in refusal(await front_end.request("PUT", "/t?api-version=2012-08", document))[1]
    assert (await front_end.request("PUT", "/t?api-version=2021-05", document)).status == 201


@pytest.mark.parametrize("path", ["/events/subscriptions", "/events/subscriptions/audit/rules", "/$Resources/topics"])
async def test_lists_can_only_be_read(front_end: RunningFrontEnd, path: str) -> None:
    await made(front_end, "audit")
    for method in ("PUT", "DELETE", "PATCH"):
        reply = await front_end.request(method, path)
        assert (reply.status, reply.headers["Allow"]) == (405, "GET")


# Messages.


@covers("M9", "B1")
async def test_what_is_sent_to_a_topic_is_received_from_its_subscriptions(front_end: RunningFrontEnd) -> None:
    await made(front_end, "all", "big")
    await front_end.namespace.update_rule("events", "big", RuleDescription("$Default", SqlFilter("size > 5")))
    for size in (1, 9):
        headers = {**TEXT, "size": str(size)}
        assert (await front_end.request("POST", "/events/messages", str(size), headers)).status == 201
    got = [await front_end.request("DELETE", "/events/subscriptions/all/messages/head") for _ in range(2)]
    assert [reply.text for reply in got] == ["1", "9"]
    locked = await front_end.request("POST", "/events/Subscriptions/big/messages/head")
    assert (locked.text, "/events/Subscriptions/big/messages/" in locked.headers["Location"]) == ("9", True)
    assert told(locked)["SequenceNumber"] == told(got[1])["SequenceNumber"]
    path = locked.headers["Location"].partition(str(front_end.port))[2]
    assert (await front_end.request("DELETE", path)).status == 200
    for subscription in ("all", "big"):
        found = await front_end.namespace.counts(f"events/subscriptions/{subscription}")
        assert (found.active, found.dead_letter) == (0, 0)


async def test_nothing_is_received_from_a_topic_or_sent_to_a_subscription(front_end: RunningFrontEnd) -> None:
    await made(front_end, "audit")
    for method in ("POST", "DELETE"):
        assert refusal(await front_end.request(method, "/events/messages/head"))[0] == 400
    assert refusal(await front_end.request("POST", "/events/subscriptions/audit/messages", b"x", TEXT))[0] == 400
    assert refusal(await front_end.request("POST", "/events/$purge"))[0] == 400
    assert refusal(await front_end.request("DELETE", "/events/messages/1"))[0] == 400


@covers("M7", "B1")
async def test_sessions_can_be_sent_to_and_not_received_from(front_end: RunningFrontEnd) -> None:
    await front_end.namespace.create_queue(QueueDescription("orders", requires_session=True))
    assert refusal(await front_end.request("POST", "/orders/messages", b"x", TEXT))[0] == 400
    sent = await front_end.request("POST", "/orders/messages", b"x", {**TEXT, "BrokerProperties": '{"SessionId":"s"}'})
    assert sent.status == 201
    for method in ("POST", "DELETE"):
        status, detail = refusal(await front_end.request(method, "/orders/messages/head"))
        assert (status, "sessions" in detail) == (400, True)
    assert (await front_end.request("DELETE", "/orders/$DeadLetterQueue/messages/head?timeout=0")).status == 204
    assert (await front_end.namespace.counts("orders")).active == 1


# Who is charged.


@covers("M14")
async def test_operations_are_charged_to_their_entity_until_it_is_deleted(front_end: RunningFrontEnd) -> None:
    await made(front_end, "audit")
    await front_end.request("GET", "/events/subscriptions/audit/rules")
    await front_end.request("GET", "/events/subscriptions")
    await front_end.request("POST", "/events/messages", b"x", TEXT)
    charged = {(row.entity, row.operation) for row in front_end.meter.totals().since_start}
    assert charged == {("events/subscriptions/audit", "manage"), ("events", "manage"), ("events", SEND)}
    await front_end.request("DELETE", "/events")
    assert {row.entity for row in front_end.meter.totals().since_start} <= {"", "$other"}


# Bad input.


@covers("F14")
@pytest.mark.parametrize("kind", ["Topic", "Subscription", "Rule"])
async def test_a_document_type_is_refused_for_every_kind(front_end: RunningFrontEnd, kind: str) -> None:
    await made(front_end, "audit")
    path = {"Topic": "/new", "Subscription": "/events/subscriptions/new", "Rule": "/events/subscriptions/audit/rules/n"}
    bomb = '<!DOCTYPE entry [<!ENTITY a "lol"><!ENTITY b "&a;&a;&a;">]>' + body(
        kind, "<UserMetadata>&b;</UserMetadata>"
    )
    assert "document type" in refusal(await front_end.request("PUT", path[kind], bomb))[1]


async def test_a_rule_with_too_many_values_is_refused(front_end: RunningFrontEnd) -> None:
    await made(front_end, "audit")
    pair = (
        "<KeyValueOfstringanyType><Key>k%d</Key><Value xmlns:x='http://www.w3.org/2001/XMLSchema' "
        "xsi:type='x:int'>1</Value></KeyValueOfstringanyType>"
    )
    values = "".join([pair % number for number in range(300)])
    document = body("Rule", f'<Filter xsi:type="CorrelationFilter"><Properties>{values}</Properties></Filter>')
    assert refusal(await front_end.request("PUT", "/events/subscriptions/audit/rules/r", document))[0] == 400
    few = "".join([pair % number for number in range(10)])
    document = body("Rule", f'<Filter xsi:type="CorrelationFilter"><Properties>{few}</Properties></Filter>')
    assert (await front_end.request("PUT", "/events/subscriptions/audit/rules/r", document)).status == 201
    wanted = front_end.namespace.rules("events", "audit")[1].filter
    assert isinstance(wanted, CorrelationFilter)
    assert wanted.properties == tuple((f"k{number}", 1) for number in range(10))
