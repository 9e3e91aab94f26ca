"""What a document supposes: a namespace with this or that in it, of which it does not speak.

Guides begin with nothing. Pages of reference show single calls, in the middle of things.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tandembus.testing import EmbeddedNamespace
from tests.guides.process import WITHIN_S
from tests.integration.serving import serving
from tests.ports import free_ports
from tests.sdk.foreign import OWN_ADDRESS

SCENES: Mapping[str, str] = {
    "docs/filters.md": """
        tandembus topic create orders
        for name in large eu red; do tandembus subscription create orders $name; done
    """,
    "docs/http.md": "tandembus queue create orders",
    "docs/metrics.md": "",
    "docs/partitioning.md": "",
    "docs/reservations.md": "tandembus queue create orders; tandembus send orders one; tandembus send orders two",
}
"""Documents that suppose a namespace, and the commands that make what they find there."""
UPKEEP = ("docs/backup.md", "docs/cli.md", "docs/doctor.md")
"""Documents that suppose a namespace on this machine, served from a folder."""
DATA = "var/lib/tandembus"
COMPILED_WITHIN_S = 600.0
"""For blocks that download and compile."""


@dataclass(frozen=True)
class Stage:
    commands: str = ""
    ports: list[int] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    within_s: float = WITHIN_S
    """How long a block may take."""


@contextlib.contextmanager
def stage_of(document: str, folder: Path) -> Iterator[Stage]:
    if document in SCENES:
        with EmbeddedNamespace(stores=2) as namespace:
            environment = {
                "TANDEMBUS_CONNECTION_STRING": namespace.connection_string,
                "BUS": namespace.connection_string,
                "BUS_TLS": namespace.tls_connection_string,
                "CA": str(namespace.ca_path),
                "NODE_EXTRA_CA_CERTS": str(namespace.ca_path),
            }
            yield Stage(SCENES[document], [namespace.port] * 6, environment)
    elif document in UPKEEP:
        with serving(folder / DATA) as running:
            environment = {"TANDEMBUS_CONNECTION_STRING": running.connection_string}
            yield Stage(
                "tandembus queue create orders; tandembus send orders one; tandembus send orders two", None, environment
            )
    elif document.startswith("docs/quickstart/"):
        # SDKs connect to the usual port of TLS, whatever the connection string says.
        amqp, http = free_ports(2)
        environment = {"TANDEMBUS_HOST": OWN_ADDRESS, "TANDEMBUS_AMQPS_PORT": "5671"}
        yield Stage("", [amqp, 5671, http, 0, 0, 0], environment, within_s=COMPILED_WITHIN_S)
    else:
        yield Stage()
