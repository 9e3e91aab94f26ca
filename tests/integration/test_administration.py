"""The unmodified administration client of the Python SDK, over TLS, against a running namespace."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
)
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.aio.management import ServiceBusAdministrationClient as AsyncAdministrationClient
from azure.servicebus.management import AccessRights, AuthorizationRule, EntityStatus, ServiceBusAdministrationClient

from tandembus.clock import SystemClock
from tandembus.security.sas import ROOT_POLICY, make_token
from tests.covers import covers
from tests.integration.serving import RunningNamespace

NEVER = timedelta(days=10_675_199)


@pytest.fixture
def client(running_namespace: RunningNamespace) -> Iterator[ServiceBusAdministrationClient]:
    with ServiceBusAdministrationClient.from_connection_string(
        running_namespace.admin_connection_string, connection_verify=str(running_namespace.ca_path)
    ) as client:
        yield client


@pytest.fixture
def name(client: ServiceBusAdministrationClient) -> Iterator[str]:
    """A name nobody has, and nobody has afterwards."""
    name = f"administration-{uuid.uuid4().hex[:12]}"
    yield name
    try:
        client.delete_queue(name)
    except ResourceNotFoundError:
        pass


@covers("B1", "M13")
def test_a_queue_is_created_with_the_defaults_of_the_service(client: ServiceBusAdministrationClient, name: str) -> None:
    queue = client.create_queue(name)
    assert queue.name == name
    assert queue.lock_duration == timedelta(minutes=1)
    assert queue.max_size_in_megabytes == 1024
    assert queue.max_delivery_count == 10
    assert isinstance(queue.default_message_time_to_live, timedelta)
    assert queue.default_message_time_to_live > NEVER
    assert isinstance(queue.auto_delete_on_idle, timedelta)
    assert queue.auto_delete_on_idle > NEVER
    assert queue.duplicate_detection_history_time_window == timedelta(minutes=10)
    assert (queue.requires_session, queue.requires_duplicate_detection, queue.enable_partitioning) == (False,) * 3
    assert (queue.enable_batched_operations, queue.dead_lettering_on_message_expiration) == (True, False)
    assert queue.status == EntityStatus.ACTIVE
    assert queue.availability_status == "Available"
    assert queue.forward_to is None
    assert queue.max_message_size_in_kilobytes == 256


@covers("B1")
def test_a_queue_keeps_what_it_was_created_with(client: ServiceBusAdministrationClient, name: str) -> None:
    rule = AuthorizationRule(
        type="SharedAccessAuthorizationRule",
        claim_type="SharedAccessKey",
        claim_value="None",
        rights=[AccessRights.SEND, AccessRights.LISTEN],
        key_name="worker",
        primary_key="d29ya2VyIG9uZQ==",
        secondary_key="d29ya2VyIHR3bw==",
    )
    client.create_queue(
        name,
        lock_duration="PT13S",
        max_size_in_megabytes=3072,
        default_message_time_to_live=timedelta(minutes=11),
        dead_lettering_on_message_expiration=True,
        duplicate_detection_history_time_window=timedelta(minutes=12),
        max_delivery_count=14,
        enable_batched_operations=True,
        auto_delete_on_idle=timedelta(minutes=10),
        user_metadata='<made by> & for "tests" \u00e9',
        authorization_rules=[rule],
    )
    queue = client.get_queue(name.upper())
    assert queue.name == name.upper()
    assert queue.lock_duration == timedelta(seconds=13)
    assert queue.max_size_in_megabytes == 3072
    assert queue.default_message_time_to_live == timedelta(minutes=11)
    assert queue.dead_lettering_on_message_expiration is True
    assert queue.duplicate_detection_history_time_window == timedelta(minutes=12)
    assert queue.max_delivery_count == 14
    assert queue.auto_delete_on_idle == timedelta(minutes=10)
    assert queue.user_metadata == '<made by> & for "tests" \u00e9'
    assert queue.authorization_rules is not None
    (kept,) = queue.authorization_rules
    queue.authorization_rules = []
    client.update_queue(queue)
    assert not client.get_queue(name).authorization_rules
    assert (kept.key_name, kept.primary_key, sorted(kept.rights or [])) == (
        "worker",
        rule.primary_key,
        ["Listen", "Send"],
    )


@covers("B1")
def test_an_update_changes_what_it_names_and_keeps_the_rest(client: ServiceBusAdministrationClient, name: str) -> None:
    queue = client.create_queue(name, max_delivery_count=5, user_metadata="kept")
    queue.lock_duration = timedelta(seconds=20)
    queue.status = EntityStatus.SEND_DISABLED
    client.update_queue(queue)
    updated = client.get_queue(name)
    assert (updated.lock_duration, updated.status) == (timedelta(seconds=20), EntityStatus.SEND_DISABLED)
    assert (updated.max_delivery_count, updated.user_metadata) == (5, "kept")
    client.update_queue(updated, user_metadata="changed", status=EntityStatus.ACTIVE)
    assert client.get_queue(name).user_metadata == "changed"


@covers("B1")
def test_an_update_that_changes_nothing_changes_nothing(client: ServiceBusAdministrationClient, name: str) -> None:
    before = client.create_queue(name)
    client.update_queue(before)
    after = client.get_queue(name)
    assert dict(before.items()) == dict(after.items())


@covers("B1")
def test_a_deleted_queue_is_gone_and_its_name_free(client: ServiceBusAdministrationClient, name: str) -> None:
    client.create_queue(name)
    client.delete_queue(name)
    with pytest.raises(ResourceNotFoundError):
        client.get_queue(name)
    with pytest.raises(ResourceNotFoundError):
        client.delete_queue(name)
    assert client.create_queue(name).name == name


@covers("B1")
def test_a_name_may_have_slashes(client: ServiceBusAdministrationClient, name: str) -> None:
    path = f"{name}/x-servicebus-transfer/0"
    client.create_queue(path)
    assert client.get_queue(path).name == path
    assert path in [queue.name for queue in client.list_queues()]
    client.delete_queue(path)


@covers("B1")
def test_all_of_250_queues_are_listed_by_name_over_several_pages(
    client: ServiceBusAdministrationClient, name: str
) -> None:
    names = [f"{name}-{number:03d}" for number in range(250)]
    for each in names:
        client.create_queue(each)
    try:
        listed = [queue.name for queue in client.list_queues()]
        assert [each for each in listed if each.startswith(name)] == names
        assert listed == sorted(listed, key=str.lower)
        counted = [queue.name for queue in client.list_queues_runtime_properties()]
        assert counted == listed
        pages = [list(page) for page in client.list_queues().by_page()]
        assert len(pages) >= 3
        assert all(len(page) <= 100 for page in pages)
    finally:
        for each in names:
            client.delete_queue(each)


@covers("B1")
def test_runtime_properties_count_the_messages(
    client: ServiceBusAdministrationClient, running_namespace: RunningNamespace, name: str
) -> None:
    client.create_queue(name)
    empty = client.get_queue_runtime_properties(name)
    assert (empty.total_message_count, empty.size_in_bytes) == (0, 0)
    with (
        ServiceBusClient.from_connection_string(running_namespace.connection_string) as sdk,
        sdk.get_queue_sender(name) as sender,
        sdk.get_queue_receiver(name, max_wait_time=5) as receiver,
    ):
        sender.send_messages([ServiceBusMessage(f"message {number}") for number in range(5)])
        (dead,) = receiver.receive_messages(max_message_count=1)
        receiver.dead_letter_message(dead, reason="counted")
        sender.schedule_messages(ServiceBusMessage("later"), _in_an_hour())
    counted = client.get_queue_runtime_properties(name)
    assert (counted.active_message_count, counted.dead_letter_message_count) == (4, 1)
    assert (counted.scheduled_message_count, counted.total_message_count) == (1, 6)
    assert (counted.transfer_message_count, counted.transfer_dead_letter_message_count) == (0, 0)
    assert counted.size_in_bytes is not None
    assert counted.size_in_bytes > 0
    times = (counted.created_at_utc, counted.updated_at_utc, counted.accessed_at_utc)
    assert all(at is not None and at.year > 2020 for at in times)


def _in_an_hour() -> datetime:
    return datetime.now(UTC) + timedelta(hours=1)


@covers("B1")
def test_the_namespace_tells_its_properties(client: ServiceBusAdministrationClient) -> None:
    properties = client.get_namespace_properties()
    assert properties.name
    assert (properties.messaging_sku, properties.namespace_type) == ("Standard", "Messaging")
    assert properties.created_at_utc is not None
    assert properties.created_at_utc.year > 2020


@covers("M13")
@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"lock_duration": timedelta(minutes=10)}, "LockDuration"),
        ({"lock_duration": timedelta(0)}, "LockDuration"),
        ({"auto_delete_on_idle": timedelta(minutes=1)}, "AutoDeleteOnIdle"),
        ({"default_message_time_to_live": timedelta(0)}, "DefaultMessageTimeToLive"),
        ({"max_size_in_megabytes": 1000}, "MaxSizeInMegabytes"),
        ({"max_delivery_count": 0}, "MaxDeliveryCount"),
        ({"max_message_size_in_kilobytes": 1024}, "MaxMessageSizeInKilobytes"),
        ({"user_metadata": "x" * 1025}, "UserMetadata"),
        ({"forward_to": "nobody"}, "ForwardTo"),
    ],
)
def test_settings_that_are_not_allowed_are_refused_by_name(
    client: ServiceBusAdministrationClient, name: str, settings: dict[str, Any], text: str
) -> None:
    with pytest.raises(HttpResponseError) as refused:
        client.create_queue(name, **settings)
    assert refused.value.status_code == 400
    assert text in str(refused.value)
    with pytest.raises(ResourceNotFoundError):
        client.get_queue(name)


@pytest.mark.parametrize("bad", ["a//b", "a b", "a?b", "x" * 261, "a/subscriptions/b", "\u00e9"])
def test_names_that_are_not_allowed_are_refused(client: ServiceBusAdministrationClient, bad: str) -> None:
    with pytest.raises(HttpResponseError) as refused:
        client.create_queue(bad)
    assert refused.value.status_code in (400, 404)


def test_what_is_fixed_at_creation_cannot_be_updated(client: ServiceBusAdministrationClient, name: str) -> None:
    queue = client.create_queue(name)
    queue.requires_session = True
    with pytest.raises(HttpResponseError, match="RequiresSession") as refused:
        client.update_queue(queue)
    assert refused.value.status_code == 400


def test_updating_a_queue_that_is_not_there_is_not_found(client: ServiceBusAdministrationClient, name: str) -> None:
    queue = client.create_queue(name)
    client.delete_queue(name)
    with pytest.raises(HttpResponseError) as refused:
        client.update_queue(queue)
    assert refused.value.status_code == 404


def test_creating_a_queue_twice_is_a_conflict(client: ServiceBusAdministrationClient, name: str) -> None:
    client.create_queue(name)
    with pytest.raises(ResourceExistsError):
        client.create_queue(name.upper())


@covers("M15")
def test_a_wrong_key_is_an_authentication_error(running_namespace: RunningNamespace) -> None:
    wrong = running_namespace.admin_connection_string.replace(running_namespace.key, "d3Jvbmc=")
    with (
        ServiceBusAdministrationClient.from_connection_string(
            wrong, connection_verify=str(running_namespace.ca_path)
        ) as client,
        pytest.raises(ClientAuthenticationError),
    ):
        client.get_namespace_properties()


@covers("M15")
def test_a_queue_s_own_rule_lets_its_holder_send_and_nobody_administer(
    client: ServiceBusAdministrationClient, running_namespace: RunningNamespace, name: str
) -> None:
    key = "b25seSBzZW5kaW5n"
    rule = AuthorizationRule(
        type="SharedAccessAuthorizationRule",
        claim_type="SharedAccessKey",
        claim_value="None",
        rights=[AccessRights.SEND],
        key_name="sender",
        primary_key=key,
        secondary_key=key,
    )
    client.create_queue(name, authorization_rules=[rule])
    theirs = running_namespace.connection_string.replace(ROOT_POLICY, "sender")
    theirs = theirs.replace(running_namespace.key, key)
    with ServiceBusClient.from_connection_string(theirs) as sdk, sdk.get_queue_sender(name) as sender:
        sender.send_messages(ServiceBusMessage("allowed"))
    assert client.get_queue_runtime_properties(name).active_message_count == 1
    status, _ = plain(running_namespace, "GET", f"/{name}", token_of(running_namespace, name, "sender", key))
    assert status == 401


@covers("B1")
async def test_the_asynchronous_client_administers_as_well(running_namespace: RunningNamespace) -> None:
    name = f"administration-{uuid.uuid4().hex[:12]}"
    async with AsyncAdministrationClient.from_connection_string(
        running_namespace.admin_connection_string, connection_verify=str(running_namespace.ca_path)
    ) as client:
        created = await client.create_queue(name, max_delivery_count=3)
        created.max_delivery_count = 4
        await client.update_queue(created)
        assert (await client.get_queue(name)).max_delivery_count == 4
        assert name in [queue.name async for queue in client.list_queues()]
        await client.delete_queue(name)
        with pytest.raises(ResourceNotFoundError):
            await client.get_queue(name)


def token_of(running: RunningNamespace, path: str = "", policy: str = ROOT_POLICY, key: str = "") -> str:
    return make_token(f"{running.http_url}/{path}", policy, key or running.key, SystemClock().now() + 60.0)


def plain(running: RunningNamespace, method: str, path: str, token: str | None) -> tuple[int, bytes]:
    """One request over plain HTTP, on the same port."""
    headers = {"Authorization": token} if token is not None else {}
    request = urllib.request.Request(running.http_url + path, method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def test_plain_http_works_on_the_same_port(running_namespace: RunningNamespace) -> None:
    status, body = plain(running_namespace, "GET", "/$namespaceinfo", token_of(running_namespace))
    assert status == 200
    assert b"<NamespaceInfo" in body
    assert plain(running_namespace, "GET", "/$namespaceinfo", None)[0] == 401


def test_health_is_told_to_anybody(running_namespace: RunningNamespace) -> None:
    assert plain(running_namespace, "GET", "/health", None) == (
        200,
        b'{"status":"healthy","message":"Service is healthy."}',
    )


def test_a_purge_empties_a_queue_and_its_dead_letters_one_by_one(
    client: ServiceBusAdministrationClient, running_namespace: RunningNamespace, name: str
) -> None:
    client.create_queue(name)
    with (
        ServiceBusClient.from_connection_string(running_namespace.connection_string) as sdk,
        sdk.get_queue_sender(name) as sender,
        sdk.get_queue_receiver(name, max_wait_time=5) as receiver,
    ):
        sender.send_messages([ServiceBusMessage("x") for _ in range(7)])
        for message in receiver.receive_messages(max_message_count=2, max_wait_time=5):
            receiver.dead_letter_message(message)
    token = token_of(running_namespace)
    counted = client.get_queue_runtime_properties(name)
    dead = counted.dead_letter_message_count or 0
    status, body = plain(running_namespace, "POST", f"/{name}/$purge", token)
    assert (status, json.loads(body)["purged"]) == (200, 7 - dead)
    status, body = plain(running_namespace, "POST", f"/{name}/$DeadLetterQueue/$purge", token)
    assert (status, json.loads(body)["purged"]) == (200, dead)
    assert client.get_queue_runtime_properties(name).total_message_count == 0


def test_the_live_counters_tell_what_a_client_did(
    client: ServiceBusAdministrationClient, running_namespace: RunningNamespace, name: str
) -> None:
    client.create_queue(name)
    with (
        ServiceBusClient.from_connection_string(running_namespace.connection_string) as sdk,
        sdk.get_queue_sender(name) as sender,
    ):
        sender.send_messages(ServiceBusMessage("small"))
        sender.send_messages(ServiceBusMessage(b"x" * 100_000))
    client.get_queue(name)
    status, body = plain(running_namespace, "GET", f"/tandembus/meter?entity={name}", token_of(running_namespace))
    assert status == 200
    rows = {row["operation"]: row for row in json.loads(body)["since_start"]}
    assert (rows["send"]["messages"], rows["send"]["operations"]) == (2, 3)
    assert rows["send"]["bytes"] > 100_000
    assert rows["manage"]["operations"] == 2
