"""The table from refusals to HTTP."""

from __future__ import annotations

from tandembus import errors
from tandembus.errors import BusError
from tandembus.front_end.http.statuses import INTERNAL, STATUSES, status_of

REPEATED_BY_AZURE_CORE = (408, 429, 500, 502, 503, 504)


def kinds() -> set[type[BusError]]:
    found = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, BusError)]
    return set(found) - {BusError}


def test_every_error_has_a_status() -> None:
    assert kinds() == set(STATUSES)


def test_only_what_may_pass_by_itself_gets_a_status_that_the_sdks_repeat() -> None:
    repeated = {kind for kind, status in STATUSES.items() if status.code in REPEATED_BY_AZURE_CORE}
    assert repeated == {kind for kind in kinds() if kind.retryable} - {
        errors.EntityDisabled,
        errors.SessionCannotBeLocked,
    }


def test_no_conflict_says_that_an_operation_is_still_going_on() -> None:
    assert all(status.sub_code != 40901 for status in STATUSES.values())


def test_sub_codes_are_of_the_same_hundred_as_their_status() -> None:
    assert all(status.sub_code // 10_000 == status.code // 100 for status in STATUSES.values())


def test_an_error_that_the_table_does_not_name_is_told_as_what_it_is_a_kind_of() -> None:
    class NarrowQuota(errors.QuotaExceeded):
        pass

    class Strange(BusError):
        pass

    assert status_of(NarrowQuota("x")).code == 403
    assert status_of(Strange("x")) is INTERNAL
