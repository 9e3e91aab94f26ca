"""The name of a primary, with which the paths of its backlog queues begin: one rule for those who make, empty and show
them. Where they had different ones, messages would wait in queues that nobody empties."""

from __future__ import annotations

import ipaddress
import re
from typing import Final

NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9])?", re.ASCII)
UNTELLING: Final = ("localhost", "localhost.localdomain", "host.docker.internal")


def chosen_name(given: str | None, own: str | None, host: str) -> str | None:
    """The name that somebody gave, else the one that the namespace gives itself, else what its host tells; None if none
    of them does. A name that was given and cannot be one is a `ValueError`.

    Clients of the SDK cannot ask a namespace for its own name: for them there are only the first and the last.
    """
    if given is not None:
        return checked_name(given)
    return own if own is not None and NAME.fullmatch(own) else name_in_host(host)


def name_in_host(host: str) -> str | None:
    """contoso of contoso.servicebus.windows.net; None where the host says nothing about the namespace."""
    bare = _without_port(host).lower().rstrip(".")
    label = bare.split(".")[0]
    is_telling = NAME.fullmatch(label) and not label.isdecimal() and bare not in UNTELLING and not _is_address(bare)
    return label if is_telling else None


def checked_name(name: str) -> str:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ValueError(f"{name!r} cannot be the name of a namespace: letters, digits, '.', '_' and '-', at most 100")
    return name


def disagreement(own: str | None, host: str) -> str | None:
    """What to warn of where a namespace gives itself another name than its host tells: clients go by the host."""
    label = name_in_host(host)
    if own is None or label is None or own.lower() == label:
        return None
    return (
        f"The primary calls itself '{own}', its host '{label}': clients that are paired without "
        f"primary_name='{own}' have their backlog under '{label}' (--primary-name {label})."
    )


def is_same_machine(host: str, other: str) -> bool:
    """As far as names tell: ports aside, and with all names of this machine for itself."""
    first, second = (_without_port(each).lower().rstrip(".") for each in (host, other))
    return first == second or (_is_this_machine(first) and _is_this_machine(second))


def _is_this_machine(host: str) -> bool:
    return host in UNTELLING[:2] or (_is_address(host) and ipaddress.ip_address(host).is_loopback)


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0] if host.count(":") == 1 else host


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
