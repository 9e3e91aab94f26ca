"""Every refusal has its word in AMQP, in a management answer, and over HTTP."""

from __future__ import annotations

import pytest

from tandembus import errors
from tandembus.errors import BusError, EntityNotFound, ServerBusy, StaleEpoch
from tandembus.front_end.amqp.conditions import CONDITIONS, MANAGEMENT_STATUSES, amqp_error, condition_of
from tandembus.front_end.http.statuses import STATUSES
from tests.covers import covers


def kinds() -> set[type[BusError]]:
    found = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, BusError)]
    return set(found) - {BusError}


def test_every_error_has_an_amqp_condition_a_management_status_and_an_http_status() -> None:
    assert kinds() == set(CONDITIONS) == set(MANAGEMENT_STATUSES) == set(STATUSES)


def test_conditions_are_those_of_amqp_or_of_the_service() -> None:
    ours: dict[type[BusError], str] = {StaleEpoch: "tandembus:stale-epoch"}
    theirs = [condition for kind, condition in CONDITIONS.items() if ours.get(kind) != condition]
    assert all(condition.startswith(("amqp:", "com.microsoft:")) for condition in theirs)


@covers("M14")
def test_only_throttling_is_told_as_server_busy() -> None:
    assert [kind for kind, word in CONDITIONS.items() if word == "com.microsoft:server-busy"] == [ServerBusy]
    assert [kind for kind, status in MANAGEMENT_STATUSES.items() if status == 503] == [ServerBusy]


@covers("M13")
def test_a_full_store_is_an_internal_error_and_a_full_entity_is_not() -> None:
    assert CONDITIONS[errors.StoreFull] == CONDITIONS[errors.StoreUnavailable] == "amqp:internal-error"
    assert CONDITIONS[errors.QuotaExceeded] == "amqp:resource-limit-exceeded"


@pytest.mark.parametrize("kind", sorted(kinds(), key=str))
def test_the_text_of_an_error_is_told_to_the_client(kind: type[BusError]) -> None:
    error = amqp_error(kind("what went wrong"), "host")
    assert (error.condition, error.description) == (CONDITIONS[kind], "what went wrong")


def test_a_condition_is_looked_up_by_the_kind_of_the_error() -> None:
    assert condition_of(EntityNotFound("x")) == "amqp:not-found"
