"""The ranges of settings that several kinds of entity share, and the words for what lies outside of them."""

from __future__ import annotations

from typing import Final

from tandembus.errors import InvalidArgument
from tandembus.limits import Limits

NEVER_S: Final = 10_675_199 * 86_400.0
"""The longest duration of the service; from here on a duration means 'never' (clients round its last
digits)."""
MAX_DELIVERY_COUNT: Final = 2_147_483_647
DEFAULT_KILOBYTES: Final = 256
LEAST_LARGE_KILOBYTES: Final = 1024


def unless_never(duration_s: float | None) -> float | None:
    return None if duration_s is None or duration_s >= NEVER_S else duration_s


def check_lock_duration(duration_s: float, limits: Limits) -> None:
    _check_duration("LockDuration", duration_s, limits.min_lock_duration_s, limits.max_lock_duration_s)


def check_time_to_live(time_to_live_s: float | None) -> None:
    if time_to_live_s is not None and not time_to_live_s > 0.0:
        raise out_of_range("DefaultMessageTimeToLive", f"{time_to_live_s:g} s", "more than 0 s")


def check_idle_time(idle_s: float | None, limits: Limits) -> None:
    if idle_s is not None:
        _check_duration("AutoDeleteOnIdle", idle_s, limits.min_auto_delete_on_idle_s, NEVER_S)


def check_duplicate_window(window_s: float, limits: Limits) -> None:
    _check_duration(
        "DuplicateDetectionHistoryTimeWindow", window_s, limits.min_duplicate_window_s, limits.max_duplicate_window_s
    )


def check_delivery_count(count: int) -> None:
    if not 1 <= count <= MAX_DELIVERY_COUNT:
        raise out_of_range("MaxDeliveryCount", count, f"1 to {MAX_DELIVERY_COUNT}")


def check_size(megabytes: int, limits: Limits) -> None:
    if megabytes not in limits.size_choices_megabytes:
        choices = ", ".join(str(size) for size in limits.size_choices_megabytes)
        raise out_of_range("MaxSizeInMegabytes", megabytes, choices)


def check_message_size(kilobytes: int | None, limits: Limits) -> None:
    largest = limits.largest_message_bytes // 1024
    if kilobytes is None or kilobytes == limits.max_message_size_bytes // 1024:
        return
    if largest <= DEFAULT_KILOBYTES:
        raise InvalidArgument(
            f"MaxMessageSizeInKilobytes cannot be {kilobytes}: this namespace has {largest} for every entity. "
            "Its setting largest_message_size_bytes allows more."
        )
    if not min(LEAST_LARGE_KILOBYTES, largest) <= kilobytes <= largest:
        raise out_of_range(
            "MaxMessageSizeInKilobytes", kilobytes, f"{min(LEAST_LARGE_KILOBYTES, largest)} to {largest}"
        )


def message_size_bytes(kilobytes: int | None, limits: Limits) -> int:
    """What an entity takes: its own limit, and never more than the namespace does now."""
    if kilobytes is None:
        return limits.max_message_size_bytes
    return min(kilobytes * 1024, limits.largest_message_bytes)


def check_user_metadata(metadata: str | None, limits: Limits) -> None:
    length = len(metadata or "")
    if length > limits.max_user_metadata_length:
        raise out_of_range("The length of UserMetadata", length, f"up to {limits.max_user_metadata_length} characters")


def out_of_range(name: str, value: object, allowed: str) -> InvalidArgument:
    return InvalidArgument(f"{name} is {value}; allowed: {allowed}.")


def _check_duration(name: str, duration_s: float, least_s: float, most_s: float) -> None:
    # Written so that a NaN is out of range, too.
    if not least_s <= duration_s <= most_s:
        upper = "up" if most_s >= NEVER_S else f"to {most_s:g} s"
        raise out_of_range(name, f"{duration_s:g} s", f"{least_s:g} s {upper}")
