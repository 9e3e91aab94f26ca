"""What a started namespace leaves for the command line to find, and what it says of what it brought about."""

from __future__ import annotations

import json
import logging
import os
from typing import TYPE_CHECKING, Final

from tandembus.config import ServeSettings
from tandembus.node.doors import Ports
from tandembus.security.key_file import write_private
from tandembus.security.sas import ROOT_POLICY, make_connection_string

if TYPE_CHECKING:
    from tandembus.namespace.namespace import Namespace
    from tandembus.node.emulator import EmulatorConfig

log = logging.getLogger("tandembus")

FACTS_FILE: Final = "namespace.json"


def connection_string_of(settings: ServeSettings, ports: Ports, key: str) -> str:
    """For AMQP clients and administration alike: every port serves both."""
    return make_connection_string(reachable(settings.host), ports.amqp, ROOT_POLICY, key, use_emulator=True)


def write_facts(settings: ServeSettings, ports: Ports) -> None:
    """The key stands in a file of its own."""
    facts = {
        "name": settings.name,
        "host": reachable(settings.host),
        "amqp_port": ports.amqp,
        "amqps_port": ports.amqps,
        "http_port": ports.http,
        "listeners": ports.further,
        "pid": os.getpid(),
    }
    write_private(settings.data / FACTS_FILE, (json.dumps(facts, indent=2) + "\n").encode(), mode=0o644)


async def bring_about(namespace: Namespace, emulator: EmulatorConfig) -> None:
    """What the emulator's Config.json asks for."""
    from tandembus.node.emulator import provision  # Few namespaces have one, and none should load longer for it.

    done = await provision(namespace, emulator)
    log.info("%s: %s", emulator.place.file, done)
    for word, paths in (("created", done.created), ("updated", done.updated)):
        for path in paths:
            log.debug("%s '%s'", word, path)


def reachable(host: str) -> str:
    """A wildcard address is one to listen on, not one to connect to."""
    return "localhost" if host in ("0.0.0.0", "::", "127.0.0.1", "::1") else host
