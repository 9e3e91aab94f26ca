"""Which cluster a job runs on: what `--master` may say, and whether anybody is there, before Spark is started.

Spark itself would take a minute to find out, and tell it in pages of Java.
"""

from __future__ import annotations

import re
import socket
from typing import Final

import click

from tandembus.cli.failures import UNREACHABLE, Failure

ANSWERS_WITHIN_S: Final = 5.0
STANDALONE: Final = "spark://"
_HOST: Final = r"(?:\[[0-9A-Fa-f:.]+\]|[^\s,:/\[\]]+):[0-9]{1,5}"
_FORMS: Final = re.compile(
    r"local(?:\[(?:\*|[1-9][0-9]*)(?:,\s*[1-9][0-9]*)?\])?"
    r"|local-cluster\[\s*[1-9][0-9]*\s*,\s*[1-9][0-9]*\s*,\s*[1-9][0-9]*\s*\]"
    rf"|spark://{_HOST}(?:,{_HOST})*"
    r"|yarn|k8s://\S+"
)


def check_form(master: str) -> str:
    """Raises `click.BadParameter` for what Spark would not take for a master."""
    if _FORMS.fullmatch(master) is None:
        raise click.BadParameter(
            f"{master!r} is no master of Spark: local[4], local[*], spark://HOST:PORT, yarn or k8s://ADDRESS"
        )
    return master


def is_cluster(master: str | None) -> bool:
    """Whether other machines do the work, as far as the command was told; `spark-submit` may know better."""
    return master is not None and not master.startswith("local")


def require_answer(master: str | None) -> None:
    """Raises `Failure` if nobody takes connections at the address of a standalone master, or at any of several."""
    if master is None or not master.startswith(STANDALONE):
        return
    reasons = [_reason(address) for address in master.removeprefix(STANDALONE).split(",")]
    if all(reasons):
        raise Failure(
            f"No Spark master answers at {master}: {reasons[0]}.",
            UNREACHABLE,
            "Is it running, and is this the address that it shows as its URL? `--master` names another one.",
            "MasterUnreachable",
        )


def _reason(address: str) -> str | None:
    """Why there is no connection, if there is none."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), ANSWERS_WITHIN_S).close()
    except (OSError, OverflowError, UnicodeError) as error:
        return getattr(error, "strerror", None) or str(error)
    return None
