"""What cannot be asked of pairing."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from azure.servicebus.aio import ServiceBusClient

from tandembus.pairing import SendAvailabilityPairedNamespaceOptions
from tests.covers import covers
from tests.unit.pairing.scripted import unused_admin


def options(**given: Any) -> SendAvailabilityPairedNamespaceOptions:
    client = ServiceBusClient("fabrikam.example", unused_admin())  # type: ignore[arg-type]
    return SendAvailabilityPairedNamespaceOptions(unused_admin(), client, **given)


@covers("N1")
async def test_the_defaults_are_those_of_the_contract() -> None:
    found = options()
    assert found.backlog_queue_count == 10
    assert found.failover_interval == timedelta(seconds=60)
    assert found.enable_syphon is False
    assert found.ping_primary_interval == timedelta(minutes=1)
    assert found.syphon_retry_interval == timedelta(seconds=1)
    assert found.operation_timeout == timedelta(seconds=60)
    assert found.backlog_queue_by_key is False


@covers("N1", "N5", "N10", "N12")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("backlog_queue_count", 0),
        ("backlog_queue_count", -1),
        ("backlog_queue_count", 1001),
        ("failover_interval", timedelta(seconds=-1)),
        ("failover_interval", timedelta(minutes=60, seconds=1)),
        ("ping_primary_interval", timedelta(milliseconds=999)),
        ("ping_primary_interval", timedelta(minutes=30, seconds=1)),
        ("syphon_retry_interval", timedelta(0)),
        ("syphon_retry_interval", timedelta(minutes=2, seconds=1)),
        ("operation_timeout", timedelta(0)),
    ],
)
async def test_values_out_of_range_are_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=name):
        options(**{name: value})


@covers("N1", "N5", "N10", "N12")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("backlog_queue_count", 1),
        ("failover_interval", timedelta(0)),
        ("failover_interval", timedelta(minutes=60)),
        ("ping_primary_interval", timedelta(seconds=1)),
        ("ping_primary_interval", timedelta(minutes=30)),
        ("syphon_retry_interval", timedelta(seconds=1)),
        ("syphon_retry_interval", timedelta(minutes=2)),
    ],
)
async def test_the_ends_of_the_ranges_are_allowed(name: str, value: object) -> None:
    assert getattr(options(**{name: value}), name) == value


@covers("N1")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("backlog_queue_count", "10"),
        ("backlog_queue_count", True),
        ("failover_interval", 60),
        ("enable_syphon", "no"),
        ("enable_syphon", None),
        ("backlog_queue_by_key", 1),
    ],
)
async def test_values_of_a_wrong_type_are_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(TypeError, match=name):
        options(**{name: value})


@covers("N1")
@pytest.mark.parametrize("name", ["enable_syphon", "failover_interval", "backlog_queue_count", "no_option"])
async def test_options_are_checked_once_and_stay_as_they_are(name: str) -> None:
    found = options()
    before = dict(vars(found))
    with pytest.raises(AttributeError, match=f"{name} cannot be set"):
        setattr(found, name, timedelta(minutes=5))
    assert vars(found) == before


@covers("N1")
async def test_something_else_than_the_sdks_clients_is_refused() -> None:
    with pytest.raises(TypeError, match=r"secondary_admin must be azure"):
        SendAvailabilityPairedNamespaceOptions("fabrikam", "fabrikam")  # type: ignore[arg-type]


@covers("N16")
async def test_a_listener_must_be_callable_and_may_be_decorated() -> None:
    heard: list[object] = []
    found = options()

    @found.on_event
    def hear(event: object) -> None:
        heard.append(event)

    with pytest.raises(TypeError, match="cannot be called"):
        found.on_event("log")  # type: ignore[type-var]
    assert hear is not None
