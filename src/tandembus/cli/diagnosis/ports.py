"""Ports: free, or served by the namespace itself."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from typing import Final

from tandembus.cli.diagnosis.finding import Area, Finding
from tandembus.cli.diagnosis.served import Served, is_of, kind_of, listeners
from tandembus.config import ServeSettings, is_loopback
from tandembus.front_end.listener import listen

AREA: Final = Area("ports")
ANSWERS_WITHIN_S: Final = 3.0


def examine(settings: ServeSettings, served: Served) -> Iterator[Finding]:
    for name, port in _ports(settings, served).items():
        if port == 0:
            yield AREA.ok(name, "any free port")
        elif served.pid is not None:
            host = served.facts.host if served.facts is not None else settings.host
            yield served_port(name, host, port, served.pid, listeners(port))
        else:
            yield _free_port(name, settings.host, port)
    if not is_loopback(settings.host):
        text = f"{settings.host} is reached from other machines, also without TLS"
        yield AREA.warning(
            "address", text, "Let a firewall pass only the ports that clients use, best the one for TLS."
        )


def _ports(settings: ServeSettings, served: Served) -> dict[str, int]:
    """Those in use, where it is running: it may have been started with others than are asked for now."""
    facts = served.facts if served.is_running else None
    amqps = settings.amqps_port if facts is None else facts.amqps_port
    ports = {"amqp": facts.amqp_port if facts else settings.amqp_port}
    ports["http"] = facts.http_port if facts else settings.http_port
    return {**ports, "amqps": amqps} if amqps is not None else ports


def served_port(name: str, host: str, port: int, namespace_pid: int, pids: list[int]) -> Finding:
    """`pids`: who is seen to listen there. Processes of other users are not, nor any where there is no /proc."""
    ours = [pid for pid in pids if is_of(pid, namespace_pid)]
    if ours:
        shown = ", ".join(f"{kind_of(pid)} (process {pid})" for pid in ours)
        return AREA.ok(name, f"{port}: served by {shown}")
    if pids:
        return _taken(name, port, pids)
    try:
        socket.create_connection((host, port), ANSWERS_WITHIN_S).close()
    except OSError:
        advice = "Look at its log: it may be starting, or stopping."
        return AREA.warning(name, f"{port}: the namespace is running, and nobody listens there", advice)
    return AREA.ok(name, f"{port}: served; by which process cannot be told")


def _free_port(name: str, host: str, port: int) -> Finding:
    try:
        listen(host, port).close()
    except OSError as error:
        # With an address that is not this machine's, whoever listens on the same port of another is not to blame.
        is_in_use = isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EADDRINUSE
        pids = listeners(port) if is_in_use else []
        if pids:
            return _taken(name, port, pids)
        return AREA.problem(name, str(error), f"Choose another with --{name}-port, or another --host.")
    return AREA.ok(name, f"{port}: free")


def _taken(name: str, port: int, pids: list[int]) -> Finding:
    shown = ", ".join(f"{kind_of(pid)} (process {pid})" for pid in pids)
    advice = f"Stop it, or choose another port with --{name}-port."
    return AREA.problem(name, f"{port}: taken by {shown}", advice)
