"""How clients may write the address of a link, and how error texts name entities."""

from __future__ import annotations

import uuid

import pytest
from azure.core.exceptions import ResourceExistsError
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError
from azure.servicebus.management import AccessRights, AuthorizationRule, EntityStatus

from tandembus.amqp.encoding import descriptors as codes
from tests.covers import covers
from tests.integration.bus import Bus
from tests.integration.conftest import Connect, with_sync_client
from tests.integration.python_sdk import PythonSdk, receive
from tests.integration.raw_amqp import MESSAGE, RawAmqp, plain, source_of, target_of
from tests.integration.shapes import PARTITIONED_ON_BROKERS, PLAIN, on_shapes

pytestmark = on_shapes(PLAIN, PARTITIONED_ON_BROKERS)

SENDER, RECEIVER = 1, 2
ADDRESSES = [
    "{}",
    "/{}",
    "sb://somewhere.servicebus.windows.net/{}",
    "amqps://127.0.0.1:5671/{}/",
    "amqp://[::1]:5672/{}",
    "servicebus+tls://user@host/{}",
    "HTTPS://Host:443/{}",
]


def encoded(path: str) -> str:
    """Every character of it."""
    return "".join(f"%{ord(character):02x}" for character in path)


@covers("B1")
@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("spelling", [str, str.upper, encoded])
def test_a_link_reaches_its_queue_however_the_address_is_written(
    raw: RawAmqp, bus: Bus, address: str, spelling: type[str]
) -> None:
    name = f"orders/{uuid.uuid4().hex}"
    bus.admin.create_queue(name, **bus.shape.settings)
    written = address.format(spelling(name))
    attached = raw.attach_sender(SENDER, written)
    assert raw.send_message(SENDER, 0, MESSAGE).described(4)[0] == codes.ACCEPTED
    assert attached.described(6)[1][0] == written  # echoed as it was sent
    raw.attach_receiver(RECEIVER, written)
    raw.flow(RECEIVER, 1)
    assert raw.receive_message()[1].body == b"hello"


@covers("B1", "M3")
@pytest.mark.parametrize(
    "path",
    [
        "{}/subscriptions/all/$deadletterqueue",
        "sb://h/{}/SUBSCRIPTIONS/ALL/$DEADLETTERQUEUE",
        "{}%2FSubscriptions%2Fall/%24DeadLetterQueue",
    ],
)
def test_subscriptions_and_dead_letters_are_found_in_any_case_and_encoded(
    sdk: PythonSdk, raw: RawAmqp, bus: Bus, path: str
) -> None:
    topic = bus.make_topic("all")
    sdk.topic_sender(topic).send_messages(ServiceBusMessage("hello"))
    receiver = sdk.subscription_receiver(topic, "all")
    (message,) = receive(receiver, 1)
    receiver.dead_letter_message(message)
    raw.attach_receiver(RECEIVER, path.format(topic))
    raw.flow(RECEIVER, 1)
    assert raw.receive_message()[1].body == b"hello"


@covers("M15")
def test_a_token_counts_for_an_address_that_is_written_in_another_way(bus: Bus) -> None:
    name = bus.make_queue()
    with RawAmqp(bus.running.port) as raw:
        raw.start()
        raw.begin()
        reply = raw.put_token(f"sb://elsewhere/{encoded(name)}")
        assert plain((reply.application_properties or {})["status-code"]) == 202
        raw.attach_sender(SENDER, name)
        assert raw.send_message(SENDER, 0, MESSAGE).described(4)[0] == codes.ACCEPTED
        raw.attach(RECEIVER, True, source_of(f"{encoded(name)}%2Fother"), target_of("client"))
        raw.expect(codes.ATTACH)
        assert "other" in str(raw.expect(codes.DETACH).error(2))  # what it covers is not widened


@covers("B1")
@with_sync_client
def test_error_texts_name_the_entity_with_the_host_that_the_client_asked_for(connect: Connect, bus: Bus) -> None:
    queue = bus.make_queue()
    for host in ("localhost", "127.0.0.1"):
        sdk = connect(bus.connection_string.replace("//localhost", f"//{host}"), retry_total=0)
        properties = bus.admin.get_queue(queue)
        properties.status = EntityStatus.SEND_DISABLED
        bus.admin.update_queue(properties)
        with pytest.raises(ServiceBusError, match=f"The messaging entity 'sb://{host}/{queue}' is disabled"):
            sdk.sender(queue).send_messages(ServiceBusMessage("m"))
        with pytest.raises(ServiceBusError, match=f"The messaging entity 'sb://{host}/{queue}' does not require"):
            sdk.receiver(queue, session_id="s")


@covers("B1")
def test_a_token_for_what_is_not_there_is_refused_with_the_name_of_it(bus: Bus) -> None:
    with RawAmqp(bus.running.port) as raw:
        raw.start()
        raw.begin()
        reply = raw.put_token("amqps://elsewhere/Nothing").application_properties or {}
    assert plain(reply["status-code"]) == 404
    assert "The messaging entity 'sb://localhost/Nothing' could not be found." in str(reply["status-description"])


@covers("B1", "M15")
def test_what_already_exists_is_named_as_the_service_names_it(bus: Bus) -> None:
    queue, topic = bus.make_queue(), bus.make_topic("all")
    here = f"sb://localhost:{bus.running.port}"
    for create, path in (
        (lambda: bus.admin.create_queue(queue), queue),
        (lambda: bus.admin.create_topic(topic), topic),
        (lambda: bus.admin.create_subscription(topic, "all"), f"{topic}/Subscriptions/all"),
        (lambda: bus.admin.create_rule(topic, "all", "$Default"), f"{topic}/Subscriptions/all/Rules/$Default"),
    ):
        with pytest.raises(ResourceExistsError) as refused:
            create()
        text = refused.value.response.text() if refused.value.response is not None else ""
        assert f"<Detail>The messaging entity '{here}/{path}' already exists." in text, text


@covers("B1", "M15")
def test_rights_are_listed_in_the_order_of_the_service(bus: Bus) -> None:
    rule = AuthorizationRule(
        type="SharedAccessAuthorizationRule",
        claim_type="SharedAccessKey",
        claim_value="None",
        rights=[AccessRights.LISTEN, AccessRights.SEND, AccessRights.MANAGE],
        key_name="all",
        primary_key="d29ya2VyIG9uZQ==",
        secondary_key="d29ya2VyIHR3bw==",
    )
    name = bus.make_queue(authorization_rules=[rule])
    (found,) = bus.admin.get_queue(name).authorization_rules or []
    assert found.rights == [AccessRights.MANAGE, AccessRights.SEND, AccessRights.LISTEN]
