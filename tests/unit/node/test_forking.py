"""Children that are forks of a loaded process: from outside they are like those that were started anew.

Each test has a process of its own that forks: the one that runs the tests has threads.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from tandembus.node.forking import ForkedProcess
from tests.covers import covers

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is forked")

ENDS_WITHIN_S = 60.0
FORKING = """
import os, signal, sys, time
from tandembus.node.forking import fork_child
def name_of(pid):
    with open(f"/proc/{pid}/cmdline") as file:
        return file.read().strip("\\0")
def until(is_true):
    while not is_true():
        time.sleep(0.01)
def wait(child):
    return child._process.wait()
"""


def told(script: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", FORKING + textwrap.dedent(script)]
    return subprocess.run(command, capture_output=True, text=True, timeout=ENDS_WITHIN_S, check=False)


def test_only_a_process_without_threads_and_without_a_loop_forks() -> None:
    ended = told(
        """
        import asyncio, threading
        from tandembus.node.forking import may_fork
        async def in_loop():
            return may_fork()
        go_on = threading.Event()
        thread = threading.Thread(target=go_on.wait)
        found = [may_fork(), asyncio.run(in_loop())]
        thread.start()
        found.append(may_fork())
        go_on.set()
        thread.join()
        print(*found, may_fork())
        """
    )
    assert ended.stdout.split() == ["True", "False", "False", "True"], ended.stderr


@covers("P3")
def test_a_fork_waits_for_its_orders_and_ends_with_its_lifeline_whoever_was_forked_after_it() -> None:
    ended = told(
        """
        first, second = [fork_child("broker", str(index), "shop") for index in range(2)]
        until(lambda: first.is_loaded() and second.is_loaded())
        print(name_of(first.pid), "and", name_of(second.pid))
        first.let_go()
        print(wait(first), second.is_alive())
        second.kill()
        print(wait(second), second.is_alive())
        """
    )
    assert ended.stdout.splitlines() == [
        "tandembus broker 0 shop and tandembus broker 1 shop",
        "70 True",
        "-9 False",
    ], ended.stderr


@covers("P3")
@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM"])
def test_a_signal_to_all_processes_ends_no_fork(number: str) -> None:
    ended = told(
        f"""
        child = fork_child("broker", "0", "shop")
        os.kill(child.pid, signal.{number})
        until(lambda: child.is_loaded() or not child.is_alive())
        os.kill(child.pid, signal.{number})
        print(child.is_alive(), signal.pthread_sigmask(signal.SIG_BLOCK, []))
        child.kill()
        print(wait(child))
        """
    )
    assert ended.stdout.splitlines() == ["True set()", "-9"], ended.stderr


@covers("P3")
def test_no_fork_outlives_its_supervisor() -> None:
    ended = told(
        """
        children = [fork_child("broker", str(index), "shop") for index in range(2)]
        until(lambda: all(child.is_loaded() for child in children))
        os.kill(children[0].pid, signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    # The forks have its standard error, too: that was read to the end, so they are gone.
    assert ended.returncode == -9


def test_what_goes_wrong_in_a_fork_is_told_and_ends_the_fork_alone() -> None:
    ended = told(
        """
        print("printed once")
        child = fork_child("broker", "0", "shop")
        child.give({"no": "orders"})
        print(wait(child))
        """
    )
    assert ended.stdout.splitlines() == ["printed once", "1"]
    assert "KeyError: 'ports'" in ended.stderr


def test_an_exit_that_somebody_else_was_told_of_is_an_exit() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    gone = ForkedProcess(process.pid)
    gone.kill()
    assert (gone.poll(), gone.wait()) == (0, 0)
