"""What systemd is told of a service with `Type=notify`, on the socket that the environment names (sd_notify(3))."""

from __future__ import annotations

import asyncio
import os
import socket


def notify(state: str) -> None:
    """Nobody may be listening, and a listener may be slow: neither keeps a namespace from going on."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as notifying:
        try:
            notifying.sendto(state.encode(), address.replace("@", "\0", 1) if address[0] == "@" else address)
        except OSError:
            pass


async def keep_watchdog_quiet() -> None:
    """Tell systemd twice within its interval that this loop turns."""
    interval_us = os.environ.get("WATCHDOG_USEC", "")
    while interval_us.isdecimal() and int(interval_us) > 0:
        notify("WATCHDOG=1")
        await asyncio.sleep(int(interval_us) / 2_000_000)
