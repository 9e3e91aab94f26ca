"""What a client may cost: sizes, times, and how little before it has shown a claim."""

from __future__ import annotations

import asyncio
import gzip
import logging
from pathlib import Path

import pytest

from tandembus.descriptions import QueueDescription
from tandembus.front_end.http.connection import HttpTimings
from tandembus.limits import Limits
from tests.covers import covers
from tests.unit.front_end.http.harness import RunningFrontEnd, running_front_end
from tests.unit.front_end.http.test_server import queue_body, refusal

SOON_S = 0.2
LONG_S = 10.0


def head(front_end: RunningFrontEnd, method: str, path: str, *lines: str, token: str | None = None) -> bytes:
    token = token if token is not None else front_end.token()
    return "\r\n".join(
        [f"{method} {path} HTTP/1.1", "Host: localhost", f"Authorization: {token}", *lines, "", ""]
    ).encode()


async def closes(front_end: RunningFrontEnd, data: bytes) -> bytes:
    """What came until the front end closed the connection, which it must do by itself."""
    return await front_end.raw(data, LONG_S)


async def keep_sending(writer: asyncio.StreamWriter, data: bytes) -> None:
    """For ever, and without reading anything: only the other side can end this."""
    while True:
        writer.write(data)
        await writer.drain()
        await asyncio.sleep(0)


@covers("F13")
async def test_a_body_above_the_limit_is_refused_before_it_is_read(front_end: RunningFrontEnd) -> None:
    size = Limits().max_management_body_bytes + 1
    answer = await closes(front_end, head(front_end, "PUT", "/orders", f"Content-Length: {size}"))
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"at most 1048576 are allowed" in answer


@covers("F13")
async def test_a_body_that_does_not_tell_its_length_is_cut_off_at_the_limit(
    front_end: RunningFrontEnd,
) -> None:
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    request = head(front_end, "PUT", "/orders", "Transfer-Encoding: chunked") + chunk * 20
    assert (await closes(front_end, request)).startswith(b"HTTP/1.1 413 ")


@covers("F13")
async def test_a_compressed_body_is_refused_and_never_unpacked(front_end: RunningFrontEnd) -> None:
    bomb = gzip.compress(b"\0" * 50_000_000)
    assert len(bomb) < 100_000
    reply = await front_end.request("PUT", "/orders", bomb, {"Content-Encoding": "gzip"})
    assert refusal(reply)[0] == 415


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        ("application/atom+xml", 201),
        ("application/atom+xml;type=entry;charset=utf-8", 201),
        ("Application/XML; charset=UTF-8", 201),
        ("text/xml", 201),
        ("application/json", 415),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("application/atom+xml;charset=utf-16", 415),
        ("rubbish", 415),
    ],
)
async def test_only_xml_is_taken_for_xml(front_end: RunningFrontEnd, content_type: str, status: int) -> None:
    reply = await front_end.request("PUT", "/orders", queue_body(), {"Content-Type": content_type})
    assert reply.status == status
    if status != 201:
        refusal(reply)


@covers("F13")
@pytest.mark.parametrize(
    "lines",
    [
        ["X-Long: " + "x" * 40_000],
        ["X-" + "x" * 40_000 + ": y"],
        [f"X-{number}: {'x' * 1_000}" for number in range(60)],
        [f"X-{number}: y" for number in range(200)],
    ],
    ids=["value", "name", "sum", "count"],
)
async def test_headers_above_the_limits_are_refused(front_end: RunningFrontEnd, lines: list[str]) -> None:
    answer = await closes(front_end, head(front_end, "GET", "/$namespaceinfo", *lines, "Connection: close"))
    assert answer.split(b" ")[1] in (b"400", b"431")


async def test_a_request_line_above_the_limit_is_refused(front_end: RunningFrontEnd) -> None:
    answer = await closes(front_end, head(front_end, "GET", "/" + "x" * 20_000))
    assert answer.startswith((b"HTTP/1.1 4", b"HTTP/1.0 4"))


@covers("F13")
async def test_a_head_that_never_ends_is_cut_off_at_the_budget(tmp_path: Path) -> None:
    async with running_front_end(tmp_path, limits=Limits(pre_auth_bytes=4_096)) as running:
        _, writer = await asyncio.open_connection("127.0.0.1", running.port)
        writer.write(b"GET / HTTP/1.1\r\n")
        with pytest.raises(ConnectionError):
            await asyncio.wait_for(keep_sending(writer, b"X: " + b"y" * 500 + b"\r\n"), LONG_S)
        writer.close()


@covers("F13")
@pytest.mark.parametrize("before", ["nothing", "strange requests", "known requests"])
async def test_a_head_above_the_limit_is_refused_while_it_arrives(front_end: RunningFrontEnd, before: str) -> None:
    requests = {
        "nothing": b"",
        "strange requests": head(front_end, "GET", "/$namespaceinfo", token="x") * 3,
        "known requests": head(front_end, "GET", "/$namespaceinfo") * 3,
    }[before]
    reader, writer = await asyncio.open_connection("127.0.0.1", front_end.port)
    writer.write(requests)
    for _ in range(requests.count(b"\r\n\r\n")):
        await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), LONG_S)
    writer.write(b"GET / HTTP/1.1\r\nHost: h\r\n" + b"".join(b"X-%d: %s\r\n" % (n, b"y" * 1_000) for n in range(45)))
    answer = await asyncio.wait_for(reader.read(), LONG_S)
    assert b"HTTP/1.1 431 " in answer
    writer.close()


@covers("F13")
@pytest.mark.parametrize(
    "rest",
    [b"0\r\n" + b"".join(b"X-%d: %s\r\n" % (n, b"y" * 1_500) for n in range(60)), b"2;" + b"y" * 90_000],
    ids=["trailers", "chunk extension"],
)
async def test_what_surrounds_a_body_in_chunks_is_bounded_as_a_head_is(front_end: RunningFrontEnd, rest: bytes) -> None:
    request = head(front_end, "PUT", "/orders", "Transfer-Encoding: chunked")
    assert await closes(front_end, request + b"2\r\n<e\r\n" + rest) == b""


@covers("F13")
async def test_a_body_in_many_small_chunks_and_with_trailers_is_taken(front_end: RunningFrontEnd) -> None:
    request = head(front_end, "PUT", "/orders", "Transfer-Encoding: chunked", "Connection: close")
    body = queue_body().encode() + b" " * 20_000
    chunks = b"".join(b"1;x=y\r\n%c\r\n" % byte for byte in body) + b"0\r\nX-Checksum: 1\r\n\r\n"
    assert (await closes(front_end, request + chunks)).startswith(b"HTTP/1.1 201 ")


@covers("F18")
@pytest.mark.parametrize("data", [b"GET / HT", b"GET /$namespaceinfo HTTP/1.1\r\nHost: x\r\nX: "])
async def test_a_head_that_does_not_come_in_time_ends_the_connection(tmp_path: Path, data: bytes) -> None:
    async with running_front_end(tmp_path, limits=Limits(pre_auth_timeout_s=SOON_S)) as running:
        assert await closes(running, data) == b""


@covers("F18")
async def test_strangers_that_are_closed_do_not_fill_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with running_front_end(tmp_path, limits=Limits(pre_auth_timeout_s=SOON_S)) as running:
        await asyncio.gather(*[closes(running, b"GET / HT") for _ in range(5)])
    (told,) = [record.getMessage() for record in caplog.records if "connection" in record.getMessage()]
    assert "it has shown no valid claim within pre_auth_timeout_s (1 since the start; logged once a minute)" in told


@covers("F18")
async def test_the_second_head_has_its_time_limit_too(tmp_path: Path) -> None:
    async with running_front_end(tmp_path, timings=HttpTimings(keep_alive_s=SOON_S)) as running:
        request = head(running, "GET", "/$namespaceinfo")
        answer = await closes(running, request + request[:-10])
        assert answer.count(b"HTTP/1.1 200 OK") == 1


@covers("F18")
async def test_an_idle_connection_ends_after_the_keep_alive_time(tmp_path: Path) -> None:
    async with running_front_end(tmp_path, timings=HttpTimings(keep_alive_s=SOON_S)) as running:
        assert (await closes(running, head(running, "GET", "/$namespaceinfo"))).startswith(b"HTTP/1.1 200 OK")


@covers("F18")
async def test_a_body_that_does_not_come_in_time_is_a_408(tmp_path: Path) -> None:
    timings = HttpTimings(body_s=SOON_S, lingering_s=SOON_S)
    async with running_front_end(tmp_path, timings=timings) as running:
        answer = await closes(running, head(running, "PUT", "/orders", "Content-Length: 100") + b"<en")
        assert answer.startswith(b"HTTP/1.1 408 ")


@covers("F10")
async def test_a_client_that_does_not_read_its_answers_is_cut_off(tmp_path: Path) -> None:
    async with running_front_end(tmp_path, timings=HttpTimings(unread_s=SOON_S)) as running:
        for number in range(100):
            await running.namespace.create_queue(QueueDescription(f"queue-{number}"))
        _, writer = await asyncio.open_connection("127.0.0.1", running.port, limit=1)
        request = head(running, "GET", "/$Resources/queues")
        with pytest.raises(ConnectionError):
            await asyncio.wait_for(keep_sending(writer, request * 10), LONG_S)
        writer.close()
        assert (await running.request("GET", "/$namespaceinfo")).status == 200


async def test_the_listener_hears_of_the_first_valid_claim_of_a_connection(
    front_end: RunningFrontEnd,
) -> None:
    good = head(front_end, "GET", "/$namespaceinfo")
    bad = head(front_end, "GET", "/$namespaceinfo", token="x")
    await closes(front_end, bad + good + good + head(front_end, "GET", "/", "Connection: close"))
    assert front_end.claims_shown == 1


@pytest.mark.parametrize(
    "data",
    [
        b"PUT /orders HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
        b"PUT /orders HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"PUT /orders HTTP/1.1\r\nHost: h\r\nContent-Length: -5\r\n\r\n",
        b"PUT /orders HTTP/1.1\r\nHost: h\r\nContent-Length : 5\r\n\r\nhello",
        b"PUT /orders HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: xchunked\r\n\r\n",
        b"GET /orders HTTP/1.1\r\nHost: h\r\nX: a\0b\r\n\r\n",
        b"GET /orders HTTP/9.9\r\nHost: h\r\n\r\n",
        b"GET  /orders\r\n\r\n",
        b"G\xffT / HTTP/1.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /orders HTTP/1.1\r\n Host: h\r\n\r\n",
    ],
)
@covers("F16")
async def test_what_could_be_read_as_two_different_requests_is_none(front_end: RunningFrontEnd, data: bytes) -> None:
    token = front_end.token().encode()
    answer = await closes(front_end, data.replace(b"Host: h", b"Host: h\r\nAuthorization: " + token))
    assert answer == b"" or answer.split(b" ")[1] in (b"400", b"501")
    assert front_end.namespace.catalog.queues() == []
    assert b"aiohttp" not in answer


@pytest.mark.parametrize("host", ["h<script>", "a b", "", "x" * 300, "h/../x", "h:123456"])
async def test_a_host_that_is_none_does_not_get_into_any_answer(front_end: RunningFrontEnd, host: str) -> None:
    request = head(front_end, "GET", "/$namespaceinfo", "Connection: close").replace(b"localhost", host.encode())
    answer = await closes(front_end, request)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"<script>" not in answer


async def test_http_1_0_without_a_host_is_served(front_end: RunningFrontEnd) -> None:
    request = f"GET /$namespaceinfo HTTP/1.0\r\nAuthorization: {front_end.token()}\r\n\r\n".encode()
    assert b" 200 OK" in await closes(front_end, request)
