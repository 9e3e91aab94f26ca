"""What a process of the namespace is told at its start, over its lifeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from tandembus.config import ServeSettings, settings_document, settings_from_document
from tandembus.node.doors import Ports
from tandembus.node.run_folder import RunFolder


@dataclass(frozen=True, slots=True)
class Orders:
    settings: ServeSettings
    install_key: bytes
    index: int
    store_count: int
    """Of the whole namespace."""
    ports: Ports | None = None
    """Of a front end."""

    @property
    def run(self) -> RunFolder:
        return RunFolder(self.settings.data)

    @property
    def stores(self) -> range:
        """Those that the broker of this index owns."""
        return range(self.index, self.store_count, max(1, self.settings.brokers))

    def document(self) -> dict[str, object]:
        ports = self.ports
        return {
            "settings": settings_document(self.settings),
            "install_key": self.install_key.hex(),
            "index": self.index,
            "store_count": self.store_count,
            "ports": None if ports is None else [ports.amqp, ports.http, ports.amqps],
        }


def orders_from_document(document: Mapping[str, object]) -> Orders:
    """What the supervisor has written, which is trusted: it started this process."""
    ports = cast("list[int] | None", document["ports"])
    return Orders(
        settings_from_document(cast("dict[str, object]", document["settings"])),
        bytes.fromhex(cast(str, document["install_key"])),
        cast(int, document["index"]),
        cast(int, document["store_count"]),
        None if ports is None else Ports(*ports),
    )
