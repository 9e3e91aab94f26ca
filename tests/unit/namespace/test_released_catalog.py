"""A catalog as the first version wrote it, record for record, still opens."""

from __future__ import annotations

from pathlib import Path

import lmdb
import pytest

from tandembus.descriptions import AuthorizationRule, EntityStatus, TopicDescription
from tandembus.limits import Limits
from tandembus.namespace.catalog import Catalog
from tandembus.store.embedded.catalog_store import Document, encode_record
from tests.covers import covers

LIMITS = Limits(catalog_map_size_bytes=16 * 1024 * 1024)
NOW = 1_700_000_000.0
META: Document = {
    "namespace_id": "0123456789abcdef",
    "created_at": 1_600_000_000.0,
    "next_incarnation": 5,
    "next_fragment_key": 5,
    "version": 9,
}
DESCRIPTION: Document = {
    "name": "Orders",
    "lock_duration_s": 30.0,
    "max_size_in_megabytes": 2048,
    "requires_duplicate_detection": False,
    "requires_session": False,
    "default_message_time_to_live_s": 3600.0,
    "dead_lettering_on_message_expiration": True,
    "duplicate_detection_history_time_window_s": 600.0,
    "max_delivery_count": 5,
    "enable_batched_operations": True,
    "is_anonymous_accessible": False,
    "support_ordering": True,
    "auto_delete_on_idle_s": None,
    "enable_partitioning": False,
    "enable_express": False,
    "forward_to": None,
    "user_metadata": "kept",
    "forward_dead_lettered_messages_to": None,
    "max_message_size_in_kilobytes": None,
    "status": "SendDisabled",
    "authorization_rules": [
        {
            "key_name": "till",
            "primary_key": "k",
            "secondary_key": "l",
            "rights": ["Send"],
            "created_at": 1.0,
            "modified_at": 2.0,
        }
    ],
}


def entry(description: Document, number: int, state: str) -> Document:
    return {
        "description": description,
        "incarnation": number,
        "fragment_key": number,
        "created_at": 1.0,
        "updated_at": 2.0,
        "state": state,
        "version": 3,
    }


RECORDS: dict[bytes, Document] = {
    b"m0": META,
    b"m1": META,
    b"qorders": entry(DESCRIPTION, 1, "active"),
    b"qhalf": entry({**DESCRIPTION, "name": "half"}, 4, "creating"),
    b"d\0\0\0\2": {"path": "gone", "incarnation": 2, "fragment_key": 2, "deleted_at": 3.0},
    b"xorders": {"accessed_at": 77.0},
    b"pkept": {"name": "kept", "primary_key": "k", "secondary_key": "", "rights": ["Listen", "Send"]},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with lmdb.open(str(tmp_path)) as environment, environment.begin(write=True) as txn:
        for key, document in RECORDS.items():
            txn.put(key, encode_record(key, document, version=1))
    return tmp_path


@covers("M1", "M13")
async def test_a_catalog_of_the_first_version_opens_with_all_it_holds(folder: Path) -> None:
    catalog = Catalog.open(folder, LIMITS, NOW)
    queue = catalog.get_queue("orders")
    assert (queue.incarnation, queue.fragment_key, queue.version, queue.created_at) == (1, 1, 3, 1.0)
    assert queue.description.status is EntityStatus.SEND_DISABLED
    assert (queue.description.lock_duration_s, queue.description.user_metadata) == (30.0, "kept")
    assert queue.description.authorization_rules == (
        AuthorizationRule("till", "k", "l", frozenset({"Send"}), 1.0, 2.0),
    )
    assert catalog.accessed_at("orders") == 77.0
    assert catalog.policies() == [AuthorizationRule("kept", "k", "", frozenset({"Listen", "Send"}))]
    assert {one.fragment_key for one in catalog.tombstones()} == {2, 4}
    assert (catalog.namespace_id, catalog.created_at) == ("0123456789abcdef", 1_600_000_000.0)
    assert (catalog.damaged, catalog.topics()) == ([], [])
    catalog.close()


@covers("M9")
async def test_it_takes_topics_and_gives_out_new_numbers(folder: Path) -> None:
    catalog = Catalog.open(folder, LIMITS, NOW)
    entry = await catalog.begin_create_topic(TopicDescription("news"), LIMITS, NOW)
    await catalog.finish_create(entry, NOW)
    assert (entry.incarnation, entry.fragment_key) == (5, 5)
    catalog.close()
    again = Catalog.open(folder, LIMITS, NOW)
    assert [one.description.name for one in again.topics()] == ["news"]
    assert [one.description.name for one in again.queues()] == ["Orders"]
    again.close()
