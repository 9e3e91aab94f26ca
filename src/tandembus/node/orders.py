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
    is_suspect: bool = False
    """The broker crashed twice in a row: it reads all pages of its stores before it opens them."""

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
            "ports": None if ports is None else [ports.amqp, ports.http, ports.amqps, ports.further],
            "is_suspect": self.is_suspect,
        }


def orders_from_document(document: Mapping[str, object]) -> Orders:
    """What the supervisor has written, which is trusted: it started this process."""
    ports = cast("tuple[int, int, int | None, list[tuple[str, int]]] | None", document["ports"])
    return Orders(
        settings_from_document(cast("dict[str, object]", document["settings"])),
        bytes.fromhex(cast(str, document["install_key"])),
        cast(int, document["index"]),
        cast(int, document["store_count"]),
        None if ports is None else Ports(*ports[:3], tuple((host, port) for host, port in ports[3])),
        cast(bool, document["is_suspect"]),
    )
