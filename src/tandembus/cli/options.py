"""Options of a command out of the fields of a dataclass: one text for each, beside what it means.

A field with `help` in its metadata is an option. Its name is the field's without a unit (`every_s` is `--every`), its
type the field's: a `bool` is a flag, a `float` in seconds a duration. The metadata may say more: `option` (another
name), `range` (of a number), `metavar`, `callback`, `default_text`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, field, fields
from functools import partial, wraps
from pathlib import Path
from typing import Any, Final

import click

from tandembus.cli.arguments import duration, stacked
from tandembus.cli.output import duration_words

TYPES: Final = {"int": int, "float": duration, "str": str, "Path": click.Path(path_type=Path), "bool": bool}
PASSED_ON: Final = ("metavar", "callback")


def option(default: Any, help: str, **more: Any) -> Any:
    """A field that is an option."""
    return field(default=default, metadata={"help": help, **more})


def options_of(kind: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds the options of a dataclass. The command gets `chosen`: the class with these fields filled in, to be called
    with the others."""
    offered = [each for each in fields(kind) if "help" in each.metadata]

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def run(**arguments: Any) -> Any:
            given = {each.name: arguments.pop(each.name) for each in offered}
            return command(chosen=partial(kind, **given), **arguments)

        return stacked(*[_declared(each) for each in offered])(run)

    return add


def _declared(each: Field[Any]) -> Callable[[Any], Any]:
    type_name = str(each.type).removesuffix(" | None")
    named = each.name.removesuffix("_s") if type_name == "float" else each.name
    name = each.metadata.get("option", "--" + named.replace("_", "-"))
    default = None if each.default is MISSING else each.default
    help = each.metadata["help"]
    if text := each.metadata.get("default_text"):
        help = f"{help}  [default: {text}]"
    more = {key: each.metadata[key] for key in PASSED_ON if key in each.metadata}
    if type_name == "bool":
        return click.option(name, each.name, is_flag=True, help=help, **more)
    if type_name == "float" and default is not None:
        default = duration_words(default)
    bounds = each.metadata.get("range")
    return click.option(
        name,
        each.name,
        type=click.IntRange(*bounds) if bounds else TYPES.get(type_name),
        help=help,
        **(
            {"required": True} if each.default is MISSING else {"default": default, "show_default": default is not None}
        ),
        **more,
    )
