"""Why traffic is there, told by the entity it is with."""

from __future__ import annotations

import pytest

from tandembus.metering.reasons import reason_to_receive, reason_to_send, reason_to_wait
from tests.covers import covers


@covers("N13")
@pytest.mark.parametrize("entity", ["contoso/x-servicebus-transfer/0", "Contoso/X-ServiceBus-Transfer/12"])
def test_traffic_of_a_backlog_queue_is_what_an_outage_costs(entity: str) -> None:
    assert (reason_to_send(entity), reason_to_receive(entity), reason_to_wait(entity)) == (
        "failover",
        "syphon",
        "longpoll",
    )


@covers("N13")
@pytest.mark.parametrize("entity", ["orders", "", "x-servicebus-transfers/0", "news/subscriptions/x-servicebus"])
def test_all_other_traffic_is_normal(entity: str) -> None:
    reasons = {reason_to_send(entity), reason_to_receive(entity), reason_to_wait(entity)}
    assert reasons == {"normal"}
