"""`tandembus syphon` in a process of its own: drained once, watched, interrupted and killed."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from asyncio.subprocess import PIPE, Process

import aiohttp

from tandembus.client import connect
from tandembus.pairing.aliases import backlog_path
from tests.covers import covers
from tests.integration.syphons import PATIENCE_S, PRIMARY, Pair, bodies, numbered, pair, until

KILLS = 2
ABSENT = "Endpoint=sb://localhost:1;SharedAccessKeyName=x;SharedAccessKey=eA==;UseDevelopmentEmulator=true"


async def program(both: Pair, *options: str, primary: str | None = None) -> Process:
    command = [sys.executable, "-m", "tandembus", "syphon", "--primary", primary or both.primary.connection_string]
    command += ["--secondary", both.secondary.connection_string, *options]
    return await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE, env=dict(os.environ))


async def ended(process: Process) -> tuple[int | None, str, str]:
    out, err = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    return process.returncode, out.decode(), err.decode()


async def line_with(process: Process, text: str) -> str:
    assert process.stderr is not None
    while line := (await asyncio.wait_for(process.stderr.readline(), PATIENCE_S)).decode():
        if text in line:
            return line
    raise AssertionError(f"it ended without saying {text!r}")


@covers("N11")
async def test_once_drains_the_queues_that_are_there_and_ends() -> None:
    async with pair("orders", queues=3) as both:
        for queue in range(3):
            await both.divert("orders", numbered(100, queue * 100), queue)
        code, out, err = await ended(await program(both, "--once", "--json"))
        assert code == 0, err
        assert json.loads(out)["moved"] == 300
        assert f"'{PRIMARY}' from 3 backlog queues" in err
        assert sorted(bodies(await both.at_home("orders"))) == list(range(300))


@covers("N11")
async def test_once_learns_the_name_from_the_backlog_while_the_primary_is_away() -> None:
    async with pair("orders", queues=1) as both:
        await both.divert("orders", numbered(5))
        code, _, err = await ended(await program(both, "--once", primary=ABSENT))
        assert code == 7, err
        assert f"'{PRIMARY}' from 1 backlog queues" in err
        assert await both.left() == 5
        await both.secondary.create_queue(backlog_path("fabrikam", 0))
        code, _, err = await ended(await program(both, "--once", primary=ABSENT))
        assert code == 2, err
        assert "give --primary-name" in err


@covers("N11")
async def test_once_has_nothing_to_drain_of_queues_that_are_missing() -> None:
    async with pair("orders", queues=0) as both:
        both.queues = [backlog_path(PRIMARY, 1)]
        await both.secondary.create_queue(both.queues[0])
        await both.divert("orders", numbered(5))
        code, out, err = await ended(await program(both, "--once", "--backlog-queues", "4"))
        assert code == 0, err
        assert "moved 5 messages" in out
        assert "from 1 backlog queues" in err
        assert "Traceback" not in err


@covers("N11")
async def test_once_tells_why_queues_cannot_be_drained_without_a_traceback() -> None:
    async with pair("orders", queues=0) as both:
        for index in range(2):
            await both.secondary.create_queue(backlog_path(PRIMARY, index), requires_session=True)
        code, _, err = await ended(await program(both, "--once", "--backlog-queues", "2"))
        assert code not in (None, 0, 7), err
        assert "Error: " in err
        assert "Traceback" not in err


@covers("N11", "B4")
async def test_the_figures_come_with_every_exit_code() -> None:
    async with pair("orders", queues=1) as both:
        both.queues.append(backlog_path(PRIMARY, 1))
        await both.divert("orders", numbered(5))

        async def figures(expected: int, *options: str, primary: str | None = None) -> int:
            code, out, err = await ended(await program(both, "--once", "--json", *options, primary=primary))
            assert code == expected, err
            moved: int = json.loads(out)["moved"]
            return moved

        assert await figures(5, "--secondary", ABSENT) == 0
        await both.secondary.create_queue(backlog_path("fabrikam", 0))
        assert await figures(2, primary=ABSENT) == 0, "whose backlog is it?"
        await both.secondary.create_queue(both.queues[1], requires_session=True)
        assert await figures(1) == 5, "one queue is emptied, the other one cannot be"
        await both.divert("orders", numbered(5))
        async with await connect(both.secondary.connection_string) as bus:
            await (await bus.receiver(both.queues[0])).receive(2)
            process = await program(both, "--once", "--json", "--backlog-queues", "1")
            await line_with(process, "in the hands of another syphon")
            process.send_signal(signal.SIGINT)
            code, out, err = await ended(process)
            assert (code, json.loads(out)["moved"]) == (130, 3), err


@covers("N12")
async def test_once_says_that_messages_are_left_for_a_dead_destination() -> None:
    async with pair("orders") as both, both.primary.fault("entity/orders", "unavailable"):
        await both.divert("orders", numbered(5))
        code, out, err = await ended(await program(both, "--once", "--backlog-queues", "1"))
        assert code == 7, err
        assert "moved 0 messages" in out
        assert "orders does not take messages" in err
        assert await both.left() == 5


@covers("N11")
async def test_it_runs_until_ctrl_c_and_shows_what_it_does() -> None:
    async with pair("orders") as both:
        process = await program(both, "--metrics-port", "0")
        url = re.findall(r"http://[\w.:/]+", await line_with(process, "metrics at"))[0]
        await both.divert("orders", numbered(50))

        async def have_all() -> bool:
            return (await both.primary.counts("orders")).active == 50 and await both.left() == 0

        await until(have_all)
        async with aiohttp.ClientSession() as http, http.get(url) as answer:
            assert answer.content_type == "text/plain"
            assert f'messages_moved_total{{queue="{both.queues[0]}"}} 50' in await answer.text()
        process.send_signal(signal.SIGINT)
        code, out, err = await ended(process)
        assert code == 0, err
        assert "moved 50 messages" in out
        assert "left" not in out
        assert "Traceback" not in err


@covers("N3", "N11")
async def test_queues_made_later_are_emptied_too_and_those_behind_a_gap_left_alone() -> None:
    async with pair("orders", queues=2) as both:
        both.queues += [backlog_path(PRIMARY, index) for index in (2, 3, 4)]
        await both.secondary.create_queue(both.queues[3])
        await both.secondary.create_queue(both.queues[4])
        await both.divert("orders", numbered(3), 3)
        process = await program(both)
        told = await line_with(process, "is missing")
        assert f"{both.queues[2]} is missing" in told
        assert "(3, 4)" in told
        assert "--backlog-queues 5" in told
        await both.secondary.create_queue(both.queues[2])
        await line_with(process, "from 5 backlog queues")

        async def have_all() -> bool:
            return (await both.primary.counts("orders")).active == 3 and await both.left() == 0

        await until(have_all)
        process.send_signal(signal.SIGINT)
        code, _, err = await ended(process)
        assert code == 0, err
        assert "Traceback" not in err


@covers("N2", "N11")
async def test_before_the_first_pairing_it_waits_for_the_queues_and_says_so_at_no_cost() -> None:
    async with pair("orders", queues=0) as both:
        process = await program(both, "--json")
        await line_with(process, f"no backlog queues of '{PRIMARY}' yet")
        assert not both.secondary.node.meter.totals().since_start
        await both.secondary.create_queue(backlog_path(PRIMARY, 0))
        await line_with(process, "from 1 backlog queues")
        process.send_signal(signal.SIGINT)
        code, _, err = await ended(process)
        assert code == 0, err


@covers("N11", "N12")
async def test_a_syphon_that_is_killed_loses_nothing_and_duplicate_detection_hides_what_it_repeats() -> None:
    count = 2000
    async with pair(queues=2, lock_duration_s=2.0) as both:
        await both.primary.create_queue("orders", requires_duplicate_detection=True)
        await both.primary.create_queue("plain")
        for queue in range(2):
            await both.divert("orders", numbered(count, queue * count), queue)
            await both.divert("plain", numbered(300, queue * 300), queue)
        for _ in range(KILLS):
            process = await program(both, "--backlog-queues", "2")
            home = (await both.primary.counts("orders")).active

            async def has_moved_some(home: int = home) -> bool:
                return (await both.primary.counts("orders")).active > home

            await until(has_moved_some)
            process.kill()
            await ended(process)
        code, _, err = await ended(await program(both, "--once", "--backlog-queues", "2"))
        assert code == 0, err
        assert sorted(bodies(await both.at_home("orders"))) == list(range(2 * count))
        assert set(bodies(await both.at_home("plain"))) == set(range(600))
        assert await both.left() == 0


@covers("N11")
async def test_what_it_cannot_work_with_is_wrong_usage() -> None:
    async with pair("orders") as both:
        secondary = both.secondary.connection_string
        code, _, err = await ended(await program(both, "--once", primary=secondary))
        assert (code, "cannot be its own secondary" in err) == (2, True)
        code, _, err = await ended(await program(both, "--once", "--primary-name", "fabrikam"))
        assert (code, "no backlog queues of 'fabrikam'" in err) == (1, True)
        code, _, err = await ended(await program(both, "--once", "--primary-name", "fabrikam", "--backlog-queues", "2"))
        assert (code, "no backlog queues of 'fabrikam'" in err) == (1, True)
