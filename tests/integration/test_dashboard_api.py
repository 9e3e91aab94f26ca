"""The dashboard's routes on a namespace as it is served: in one process, and over several."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.covers import covers
from tests.integration.processes import Processes
from tests.integration.serving import KEY

OURS = {"X-Tandembus": "1"}
SHAPES = {"one process": (), "several": ("--brokers", "2", "--front-ends", "2")}
ROOT = "RootManageSharedAccessKey"


@pytest.fixture(scope="module", params=SHAPES)
def processes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    processes = Processes(tmp_path_factory.mktemp("dashboard") / "data", *SHAPES[request.param])
    yield processes
    assert processes.running.stop() == 0, "".join(processes.running.log)


class Page:
    """The dashboard in a browser: each request may reach another front end."""

    def __init__(self, processes: Processes) -> None:
        self.base = f"http://127.0.0.1:{processes.running.http_port}"
        self.cookie = ""

    async def ask(self, method: str, path: str, document: object = None) -> tuple[int, Any]:
        headers = {**OURS, "Cookie": self.cookie} if self.cookie else OURS
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, f"{self.base}{path}", json=document, headers=headers) as response,
        ):
            self.cookie = response.headers.get("Set-Cookie", self.cookie).partition(";")[0]
            is_json = response.content_type == "application/json"
            return response.status, await response.json() if is_json else await response.text()

    async def told(self, route: str) -> Any:
        status, document = await self.ask("GET", f"/$api/{route}")
        assert status == 200, document
        return document

    async def sign_in(self) -> None:
        status, _ = await self.ask("POST", "/$api/session", {"key_name": ROOT, "key": KEY})
        assert status == 200


async def code_of(processes: Processes) -> str:
    for _ in range(1_000):
        found = re.search(r"^dashboard http://\S+/#sign-in=(\S+)$", "".join(processes.running.log), re.MULTILINE)
        if found is not None:
            return found[1]
        await asyncio.sleep(0.01)
    raise AssertionError("no link was printed")


@covers("B4")
async def test_the_link_that_is_printed_signs_one_browser_in(processes: Processes) -> None:
    code = await code_of(processes)
    pages = [Page(processes) for _ in range(8)]
    answers = await asyncio.gather(*[page.ask("POST", "/$api/session", {"code": code}) for page in pages])
    assert sorted(status for status, _ in answers) == [200] + [401] * 7
    winner = next(page for page, (status, _) in zip(pages, answers, strict=True) if status == 200)
    for _ in range(8):  # whichever front end is asked
        assert (await winner.told("session"))["policy"] == ROOT
    folder = Path(processes.running.data) / "run" / "sign-in"
    assert list(folder.iterdir()) == []


@covers("B4", "P8")
async def test_an_entity_is_made_and_shown_at_every_front_end(processes: Processes) -> None:
    page = Page(processes)
    await page.sign_in()
    body = {"kind": "queue", "settings": {"enable_partitioning": True, "user_metadata": "wide"}}
    status, made = await page.ask("PUT", "/$api/entity?path=wide", body)
    assert (status, made["settings"]["user_metadata"]) == (201, "wide")
    status, _ = await page.ask("POST", "/wide/messages")
    assert status == 201
    for _ in range(8):
        shown = await page.told("entity?path=WIDE")
        assert (shown["availability"], shown["active"], len(shown["fragments"])) == ("Available", 1, 16)
        assert {one["state"] for one in shown["fragments"]} == {"available"}
        assert sum(one["active"] for one in shown["fragments"]) == 1
        assert None not in {one["broker"] for one in shown["fragments"]}
        listed = await page.told("entities?search=WI")
        assert [one["path"] for one in listed["entities"]] == ["wide"]
    status, _ = await page.ask("DELETE", "/$api/entity?path=wide")
    assert status == 204
    for _ in range(8):
        assert (await page.ask("GET", "/$api/entity?path=wide"))[0] == 404


@covers("B4")
async def test_the_overview_is_of_all_processes(processes: Processes) -> None:
    page = Page(processes)
    await page.sign_in()
    await page.ask("PUT", "/$api/entity?path=counted", {"kind": "queue"})
    for _ in range(6):
        assert (await page.ask("POST", "/counted/messages"))[0] == 201
    sent = 0
    for _ in range(100):
        own = (await page.told("overview"))["namespace"]
        sent, active = own["counters"]["sent"], own["active"]
        if sent >= 6 and active >= 6:
            break
        await asyncio.sleep(0.1)
    assert (sent >= 6, active >= 6) == (True, True)
    assert (own["state"], own["faults"]) == ("available", 0)
    assert len(own["stores"]) == len(own["brokers"])


@covers("B4", "M15")
async def test_a_key_that_is_made_anew_ends_sessions_at_every_front_end(processes: Processes) -> None:
    root, page = Page(processes), Page(processes)
    await root.sign_in()
    _, policy = await root.ask("PUT", "/$policies/reader", {"rights": ["Listen"]})
    wanted = {"key_name": "reader", "key": policy["primary_key"]}
    assert (await page.ask("POST", "/$api/session", wanted))[0] == 200
    assert (await page.ask("GET", "/$api/entities"))[0] == 200
    assert (await page.ask("PUT", "/$api/entity?path=no", {"kind": "queue"}))[0] == 403
    assert (await root.ask("POST", "/$policies/reader/regenerate?key=primary"))[0] == 200
    for _ in range(8):
        assert (await page.ask("GET", "/$api/entities"))[0] == 401


@covers("B4")
async def test_the_page_itself_is_served(processes: Processes) -> None:
    status, text = await Page(processes).ask("GET", "/")
    assert status == 200
    assert "<html" in text
