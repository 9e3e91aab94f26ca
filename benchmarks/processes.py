"""Small services around the brokers' processes: ports, waiting, memory."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

STOP_TIMEOUT_S = 60.0


def free_port() -> int:
    """A port nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def accepts_connections(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout_s} s for {what}")
        time.sleep(0.005)


def stop(process: "subprocess.Popen[str]") -> None:
    """End a process we started and everything it started: it was made the leader of its own group."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(timeout=STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if process.stdout is not None:
        process.stdout.close()


def anonymous_memory_bytes(pid: int) -> int:
    """RssAnon: what belongs to the process alone; a memory-mapped store's clean pages do not count."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/{pid}/status names no RssAnon")


def family_of(pid: int) -> list[int]:
    """A process and everything that it, or what it started, has started and not waited for."""
    family = [pid]
    for one in family:
        for children in Path(f"/proc/{one}/task").glob("*/children"):
            with suppress(OSError):  # a thread that has ended just now
                family += [int(child) for child in children.read_text().split()]
    return family


def processor_s(pid: int, with_ended: bool = False) -> float:
    """User and system time of a process so far; `with_ended`: and of those it has started that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11 : 15 if with_ended else 13])) / os.sysconf("SC_CLK_TCK")
