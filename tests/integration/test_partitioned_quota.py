"""How many partitioned entities a namespace may have, as clients see it."""

from __future__ import annotations

from pathlib import Path

import pytest
from azure.core.exceptions import HttpResponseError

from tests.covers import covers
from tests.integration.bus import Bus
from tests.integration.serving import serving

MOST = 3


@covers("P25")
def test_one_partitioned_entity_too_many_is_refused_to_clients_and_plain_ones_are_not(tmp_path: Path) -> None:
    setting = {"TANDEMBUS_LIMITS_MAX_PARTITIONED_ENTITIES": str(MOST)}
    with serving(tmp_path / "data", "--brokers", "2", environment=setting) as namespace:
        bus = Bus(namespace)
        admin = bus.admin
        admin.create_queue("queue", enable_partitioning=True)
        admin.create_topic("topic", enable_partitioning=True)
        admin.create_subscription("topic", "counts-as-none")
        admin.create_queue("another", enable_partitioning=True)
        for create in (admin.create_queue, admin.create_topic):
            with pytest.raises(HttpResponseError, match="3 partitioned entities; at most 3 are allowed") as refused:
                create("too-many", enable_partitioning=True)
            assert refused.value.status_code == 403
        admin.create_queue("plain")
        admin.delete_queue("queue")
        admin.create_topic("too-many", enable_partitioning=True)
        bus.close()
