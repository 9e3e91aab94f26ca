"""A namespace started from the official emulator's Config.json, with the connection strings that go with it."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.exceptions import ServiceBusAuthenticationError
from click.testing import CliRunner

from tandembus.cli import main
from tandembus.config import EMULATOR_CONFIG
from tests.covers import covers
from tests.integration.bus import Bus
from tests.integration.serving import RunningNamespace, serving, start_namespace

CONFIG: dict[str, Any] = {
    "UserConfig": {
        "Namespaces": [
            {
                "Name": "sbemulatorns",
                "Queues": [
                    {
                        "Name": "queue.1",
                        "Properties": {
                            "DeadLetteringOnMessageExpiration": False,
                            "DefaultMessageTimeToLive": "PT1H",
                            "DuplicateDetectionHistoryTimeWindow": "PT20S",
                            "ForwardDeadLetteredMessagesTo": "",
                            "ForwardTo": "",
                            "LockDuration": "PT1M",
                            "MaxDeliveryCount": 3,
                            "RequiresDuplicateDetection": False,
                            "RequiresSession": False,
                        },
                    },
                    {"Name": "queue.2"},
                ],
                "Topics": [
                    {
                        "Name": "topic.1",
                        "Properties": {
                            "DefaultMessageTimeToLive": "PT1H",
                            "DuplicateDetectionHistoryTimeWindow": "PT20S",
                            "RequiresDuplicateDetection": False,
                        },
                        "Subscriptions": [
                            {
                                "Name": "subscription.1",
                                "Properties": {"LockDuration": "PT1M", "MaxDeliveryCount": 3, "RequiresSession": False},
                                "Rules": [
                                    {
                                        "Name": "app-prop-filter-1",
                                        "Properties": {
                                            "FilterType": "Correlation",
                                            "CorrelationFilter": {
                                                "ContentType": "application/text",
                                                "Properties": {"prop1": "value1"},
                                            },
                                        },
                                    }
                                ],
                            },
                            {
                                "Name": "subscription.2",
                                "Rules": [
                                    {
                                        "Name": "user-prop-filter-1",
                                        "Properties": {
                                            "FilterType": "Sql",
                                            "SqlFilter": {"SqlExpression": "sys.MessageId = '2' OR number > 5"},
                                            "Action": {"SqlExpression": "SET seen = 'yes'"},
                                        },
                                    }
                                ],
                            },
                            {"Name": "subscription.3"},
                        ],
                    }
                ],
            }
        ],
        "Logging": {"Type": "File"},
    }
}


def connection_string(port: int) -> str:
    """As it stands in everybody's settings, but for the port."""
    return (
        f"Endpoint=sb://localhost:{port};SharedAccessKeyName=RootManageSharedAccessKey;"
        "SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;"
    )


def write(folder: Path, document: dict[str, Any]) -> Path:
    path = folder / "Config.json"
    path.write_text(json.dumps(document))
    return path


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNamespace]:
    folder = tmp_path_factory.mktemp("emulated")
    running = start_namespace(folder / "data", "--config", str(write(folder, CONFIG)))
    yield running
    running.stop_in_peace()


@covers("B2")
def test_the_emulators_connection_string_sends_and_receives(emulated: RunningNamespace) -> None:
    with (
        ServiceBusClient.from_connection_string(connection_string(emulated.port)) as client,
        client.get_queue_sender("queue.1") as sender,
        client.get_queue_receiver("queue.1", max_wait_time=20) as receiver,
    ):
        sender.send_messages(ServiceBusMessage("hello"))
        (message,) = receiver.receive_messages()
        assert (str(message), message.time_to_live) == ("hello", timedelta(hours=1))
        receiver.complete_message(message)


@covers("B2")
def test_its_entities_are_there_as_they_were_asked_for(emulated: RunningNamespace) -> None:
    bus = Bus(emulated, connection_string(emulated.http_port))
    try:
        assert [queue.name for queue in bus.admin.list_queues()] == ["queue.1", "queue.2"]
        assert bus.admin.get_queue("queue.2").max_delivery_count == 3
        subscriptions = [one.name for one in bus.admin.list_subscriptions("topic.1")]
        assert subscriptions == ["subscription.1", "subscription.2", "subscription.3"]
        assert [rule.name for rule in bus.admin.list_rules("topic.1", "subscription.1")] == ["app-prop-filter-1"]
        assert [rule.name for rule in bus.admin.list_rules("topic.1", "subscription.3")] == ["$Default"]
    finally:
        bus.close()


@covers("B2", "M9")
def test_its_rules_decide_what_a_subscription_gets(emulated: RunningNamespace) -> None:
    with ServiceBusClient.from_connection_string(connection_string(emulated.port)) as client:
        with client.get_topic_sender("topic.1") as sender:
            first = ServiceBusMessage("first", message_id="1", content_type="application/text")
            first.application_properties = {"prop1": "value1"}
            sender.send_messages([first, ServiceBusMessage("second", message_id="2")])
        received = {name: receive_all(client, f"subscription.{name}") for name in "123"}
    assert [str(message) for message in received["1"]] == ["first"]
    assert [str(message) for message in received["2"]] == ["second"]
    assert received["2"][0].application_properties == {b"seen": b"yes", b"RuleName": b"user-prop-filter-1"}
    assert [str(message) for message in received["3"]] == ["first", "second"]


def receive_all(client: ServiceBusClient, subscription: str) -> list[ServiceBusReceivedMessage]:
    """Everything that is there, in the order it came; the receivers' last wait tells that nothing else is."""
    with client.get_subscription_receiver("topic.1", subscription, receive_mode="receiveanddelete") as receiver:
        return list(receiver.receive_messages(10, max_wait_time=5))


@covers("B2")
def test_the_health_check_of_the_emulator_answers(emulated: RunningNamespace) -> None:
    with urllib.request.urlopen(f"{emulated.http_url}/health", timeout=20) as answer:
        assert answer.status == 200


@covers("B2", "F17")
def test_the_start_says_what_was_done_and_warns_of_the_key_once(emulated: RunningNamespace) -> None:
    log = "".join(emulated.log)
    assert "Config.json: 6 created, 0 updated, 0 unchanged" in log
    assert log.count("WARNING") == 1
    assert log.count("SAS_KEY_VALUE") == 1


@covers("B2")
def test_another_start_with_a_changed_file_updates_and_keeps_the_rest(tmp_path: Path) -> None:
    first = start_namespace(tmp_path / "data", "--config", str(write(tmp_path, CONFIG)))
    with (
        ServiceBusClient.from_connection_string(connection_string(first.port)) as client,
        client.get_queue_sender("queue.1") as sender,
    ):
        sender.send_messages(ServiceBusMessage("kept"))
    first.stop_in_peace()
    changed = json.loads(json.dumps(CONFIG))
    queues = changed["UserConfig"]["Namespaces"][0]["Queues"]
    queues[0]["Properties"]["LockDuration"] = "PT10S"
    queues[1] = {"Name": "queue.3"}
    second = start_namespace(tmp_path / "data", "--config", str(write(tmp_path, changed)))
    bus = Bus(second)
    try:
        assert "Config.json: 1 created, 1 updated, 6 unchanged" in "".join(second.log)
        assert [queue.name for queue in bus.admin.list_queues()] == ["queue.1", "queue.2", "queue.3"]
        assert bus.admin.get_queue("queue.1").lock_duration == timedelta(seconds=10)
        assert bus.counts("queue.1").active == 1
    finally:
        bus.close()
        second.stop_in_peace()


@covers("B2", "M15")
def test_without_such_a_file_its_key_is_worth_nothing(running_namespace: RunningNamespace) -> None:
    text = connection_string(running_namespace.port)
    with (
        ServiceBusClient.from_connection_string(text, retry_total=0) as client,
        pytest.raises(ServiceBusAuthenticationError),
    ):
        client.get_queue_sender("queue.1").__enter__()


@covers("B2")
def test_a_wrong_file_ends_the_start_before_there_is_anything(tmp_path: Path) -> None:
    wrong = json.loads(json.dumps(CONFIG))
    wrong["UserConfig"]["Namespaces"][0]["Queues"][0]["Properties"]["LockDuration"] = "PT1H"
    path = write(tmp_path, wrong)
    result = CliRunner().invoke(main, ["serve", "--data", str(tmp_path / "data"), "--config", str(path)])
    assert result.exit_code == 2
    assert f"{path}: UserConfig.Namespaces[0].Queues[0].Properties.LockDuration: " in result.output
    assert "5 s to 300 s" in result.output
    assert not (tmp_path / "data").exists()


@covers("B2")
@pytest.mark.skipif(EMULATOR_CONFIG.exists(), reason="this machine has such a file")
def test_without_a_file_where_the_emulator_has_it_the_start_says_so(tmp_path: Path) -> None:
    with serving(tmp_path / "data", "--emulator") as running:
        told = [record["message"] for record in running.told_at("WARNING")]
    assert f"no Config.json at {EMULATOR_CONFIG}; name one with --config" in told
