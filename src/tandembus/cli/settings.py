"""Every setting of queues, topics and subscriptions as an option, from the table in `descriptions.settings`.

An option is offered where the entity's settings have a field of its name.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Final, TypeVar, cast

import click

from tandembus.cli.arguments import duration
from tandembus.client.entities import Settings
from tandembus.descriptions.settings import EntityStatus, Kind, Setting, settings_of

T = TypeVar("T", bound=Callable[..., Any])
MB_PER_GB: Final = 1024
SIZE_MB: Final = "max_size_in_megabytes"
SIZE_GB: Final = "max_size_gb"
_TYPES: Final = {
    Kind.INTEGER: int,
    Kind.SIZE: int,
    Kind.DURATION: duration,
    Kind.TEXT: str,
    Kind.TARGET: str,
    Kind.STATUS: click.Choice([status.value for status in EntityStatus], case_sensitive=False),
}


def setting_options(kind: type[Settings], *, creating: bool) -> Callable[[T], T]:
    """The options of all settings that this kind of entity has; once it is there, of those that can be changed."""
    offered = [setting for setting in settings_of(kind) if setting.option]

    def add(command: T) -> T:
        changed = command
        for setting in reversed(offered):
            if setting.name == SIZE_MB:
                changed = _with_size_in_gb(changed)
            changed = _option_of(setting, creating)(changed)
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

    help = "Size limit: 1 to 5 GB. A partitioned entity holds 16 times that."
    return cast(T, click.option("--max-size-gb", SIZE_GB, type=click.IntRange(1, 5), help=help)(run))


def _option_of(setting: Setting, creating: bool) -> Callable[[T], T]:
    """A boolean is a pair of flags; neither of them leaves it as it is. A fixed setting of an entity that is there is
    known but not shown: who tries to change it reads that it cannot be changed."""
    names = setting.option.split()
    if setting.kind is not Kind.BOOLEAN:
        return click.option(*names, setting.name, type=_TYPES[setting.kind], help=setting.help)
    flags = [f"{name}/--no-{name.removeprefix('--')}" for name in names]
    if creating or not setting.is_fixed:
        return click.option(*flags, setting.name, default=None, help=setting.help)
    return click.option(
        *flags, setting.name, default=None, hidden=True, expose_value=False, callback=_refuse_change, help=setting.help
    )


def _refuse_change(_: click.Context, option: click.Parameter, value: object) -> None:
    if value is not None:
        raise click.UsageError(
            f"{option.opts[0]} is chosen when the entity is created, and cannot be changed. Create another one with it."
        )
