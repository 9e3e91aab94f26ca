"""Every setting of queues, topics and subscriptions as an option: one table for all of their commands.

Which entity has a setting is not said here: an option is offered where the entity's settings have a field of its name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from typing import Any, Final, TypeVar, cast

import click

from tandembus.cli.parameters import duration
from tandembus.client.entities import Settings

T = TypeVar("T", bound=Callable[..., Any])
STATUSES: Final = ("Active", "Disabled", "SendDisabled", "ReceiveDisabled")
MB_PER_GB: Final = 1024
FLAG: Final = object()
"""A setting that is on or off: `--name` and `--no-name`, and neither leaves it to the service."""


SIZE_MB: Final = "max_size_mb"
SIZE_GB: Final = "max_size_gb"


@dataclass(frozen=True, slots=True)
class Setting:
    """A field of the settings, the option that names it, and what it means."""

    field: str
    names: tuple[str, ...]
    type: Any
    help: str
    is_fixed: bool = False
    """Chosen when the entity is made, and never again; such a setting is a flag."""
    same_as: str = ""
    """The field that this is another way to say; it has none of its own."""

    @property
    def owner(self) -> str:
        """Where there is a field of this name, the option is offered."""
        return self.same_as or self.field


SETTINGS: Final = (
    Setting("requires_session", ("--requires-session",), FLAG, "Every message belongs to a session.", True),
    Setting(
        "requires_duplicate_detection",
        ("--requires-duplicate-detection",),
        FLAG,
        "Drop messages whose id was seen before.",
        True,
    ),
    Setting(
        "partitioning",
        ("--enable-partitioning",),
        FLAG,
        "Spread it over 16 fragments on several brokers and stores.",
        True,
    ),
    Setting("lock_duration_s", ("--lock-duration",), duration, "How long a receiver may keep a message or session."),
    Setting(
        SIZE_GB,
        ("--max-size-gb",),
        click.IntRange(1, 5),
        "Size limit: 1 to 5 GB. A partitioned entity holds 16 times that.",
        same_as=SIZE_MB,
    ),
    Setting(SIZE_MB, ("--max-size-mb",), int, "The same in MB: 1024 to 5120 in steps of 1024."),
    Setting("default_time_to_live_s", ("--default-ttl",), duration, "Maximum time to live of a message."),
    Setting(
        "dead_lettering_on_expiration",
        ("--dead-lettering-on-expiration",),
        FLAG,
        "Dead-letter expired messages, or drop them.",
    ),
    Setting(
        "dead_lettering_on_filter_errors",
        ("--dead-lettering-on-filter-errors",),
        FLAG,
        "Dead-letter messages on which a rule fails, or drop them.",
    ),
    Setting(
        "duplicate_detection_window_s",
        ("--duplicate-window", "--duplicate-detection-window"),
        duration,
        "How long message ids are remembered.",
    ),
    Setting(
        "max_delivery_count", ("--max-delivery-count",), int, "Failed deliveries before a message is dead-lettered."
    ),
    Setting("batched_operations", ("--batched-operations",), FLAG, "Let the service batch its work."),
    Setting(
        "status", ("--status",), click.Choice(STATUSES, case_sensitive=False), "What clients may do with it at present."
    ),
    Setting("auto_delete_on_idle_s", ("--auto-delete-on-idle",), duration, "Delete it when unused so long."),
    Setting("forward_to", ("--forward-to",), str, "Move messages on to this queue or topic; empty = no more."),
    Setting(
        "forward_dead_letters_to",
        ("--forward-dead-letters-to",),
        str,
        "Move dead letters on to this queue or topic; empty = no more.",
    ),
    Setting("support_ordering", ("--support-ordering",), FLAG, "Keep the order in which messages were sent."),
    Setting(
        "filtering_before_publishing",
        ("--filtering-before-publishing",),
        FLAG,
        "Evaluate the rules before a message is accepted.",
    ),
    Setting("express", ("--express",), FLAG, "Let the service keep messages in memory for a while."),
    Setting("user_metadata", ("--user-metadata",), str, "Text of your own, kept with it; empty = none."),
    Setting("max_message_size_kb", ("--max-message-size-kb",), int, "Largest message (Premium)."),
)

NOT_OPTIONS: Final = frozenset(("policies",))
"""Fields with commands of their own."""


def setting_options(kind: type[Settings], *, creating: bool) -> Callable[[T], T]:
    """The options of all settings that this kind of entity has; once it is there, of those that can be changed."""
    had = {each.name for each in fields(kind)}
    offered = [each for each in SETTINGS if each.owner in had]

    def add(command: T) -> T:
        changed = _with_size_in_gb(command) if SIZE_MB in had else command
        for setting in reversed(offered):
            option = _option_of(setting) if creating or not setting.is_fixed else _fixed_option_of(setting)
            changed = option(changed)
        return changed

    return add


def _with_size_in_gb(command: T) -> T:
    @wraps(command)
    def run(**arguments: Any) -> Any:
        size_gb = arguments.pop(SIZE_GB)
        if size_gb is not None:
            if arguments[SIZE_MB] is not None:
                raise click.UsageError("--max-size-gb and --max-size-mb say the same: give one of them.")
            arguments[SIZE_MB] = size_gb * MB_PER_GB
        return command(**arguments)

    return cast(T, run)


def _option_of(setting: Setting) -> Callable[[T], T]:
    if setting.type is FLAG:
        return click.option(*_flag_names(setting), setting.field, default=None, help=setting.help)
    return click.option(*setting.names, setting.field, type=setting.type, help=setting.help)


def _fixed_option_of(setting: Setting) -> Callable[[T], T]:
    """Known, but not shown: who tries to change it is told that it cannot be changed."""
    return click.option(
        *_flag_names(setting),
        setting.field,
        default=None,
        help=setting.help,
        hidden=True,
        expose_value=False,
        callback=_refuse_change,
    )


def _flag_names(setting: Setting) -> list[str]:
    return [f"{name}/--no-{name.removeprefix('--')}" for name in setting.names]


def _refuse_change(_: click.Context, option: click.Parameter, value: object) -> None:
    if value is not None:
        raise click.UsageError(
            f"{option.opts[0]} is chosen when the entity is created, and cannot be changed. Create another one with it."
        )
