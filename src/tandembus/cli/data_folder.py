"""What a data folder tells about the namespace that is served from it.

`serve` leaves these facts when it starts, and the other commands read them, so that a person on the same machine
needs no connection string at all. The key stays in a file of its own that only its owner can read.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tandembus.cli.failures import NOT_FOUND, Failure
from tandembus.security.key_file import read_key
from tandembus.security.sas import ROOT_POLICY, make_connection_string

DEFAULT_FOLDER: Final = "tandembus-data"
FACTS_FILE: Final = "namespace.json"
CA_FILE: Final = Path("tls", "ca.pem")


@dataclass(frozen=True, slots=True)
class ServedNamespace:
    """How to reach the namespace of a data folder."""

    name: str
    host: str
    amqp_port: int
    amqps_port: int | None
    http_port: int


def is_there(folder: Path) -> bool:
    return (folder / FACTS_FILE).is_file()


def served_from(folder: Path) -> ServedNamespace:
    """The namespace of this folder, whether it is running or not."""
    path = folder / FACTS_FILE
    try:
        facts = json.loads(path.read_text())
        ports = facts["amqp_port"], facts["amqps_port"], facts["http_port"]
        return ServedNamespace(facts["name"], facts["host"], *ports)
    except FileNotFoundError:
        if read_key(folder) is not None:
            advice = f"`tandembus serve --data {folder}` serves it: then it is known where it can be reached."
            message = f"The namespace in {folder} was restored, and not served since."
            raise Failure(message, NOT_FOUND, advice, "NamespaceNotServed") from None
        advice = f"`tandembus serve --data {folder}` makes one; --data names another folder."
        raise Failure(f"There is no namespace in {folder}.", NOT_FOUND, advice, "NamespaceNotFound") from None
    except (ValueError, TypeError, KeyError):
        advice = "`tandembus serve` writes it anew when it starts."
        raise Failure(f"{path} is damaged.", advice=advice, kind="DamagedFile") from None


def connection_string_of(folder: Path, tls: bool = False) -> str:
    """For the root policy. Plain AMQP unless `tls`: that form every SDK takes without further settings."""
    served = served_from(folder)
    key = read_key(folder)
    if key is None:
        advice = "It was started with --key: put that key into the connection string yourself."
        raise Failure(f"The key of {served.name} is not kept in {folder}.", NOT_FOUND, advice, "KeyNotFound")
    port = (served.amqps_port or served.amqp_port) if tls else served.amqp_port
    return make_connection_string(served.host, port, ROOT_POLICY, key, use_emulator=not tls)


def ca_of(folder: Path) -> Path:
    """The certificate authority that signed the namespace's certificate."""
    served = served_from(folder)
    path = (folder / CA_FILE).resolve()
    if not path.is_file():
        advice = "It uses a certificate that was given to it: trust the authority that signed that one."
        raise Failure(f"{served.name} has no certificate authority of its own.", NOT_FOUND, advice, "CaNotFound")
    return path
