"""The dashboard's files: served to everybody, with everything a browser is to know about them, and nothing else."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tandembus.front_end.http.static_files import CONTENT_TYPES, FOLDER, HEADERS, StaticFiles
from tests.covers import covers
from tests.unit.front_end.http.harness import RunningFrontEnd
from tests.unit.front_end.http.test_server import refusal


def on_disk() -> list[str]:
    """But what makes the folder a package, and what is for people who read the sources."""
    files = [path for path in FOLDER.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc", ".md")]
    return [path.relative_to(FOLDER).as_posix() for path in files if not path.name.startswith("LICENSE")]


@covers("B4")
async def test_every_file_is_served_without_signing_in_and_with_all_headers(front_end: RunningFrontEnd) -> None:
    assert on_disk()
    for path, name in [("/", "index.html"), *((f"/$dashboard/{name}", name) for name in on_disk())]:
        for method in ("GET", "HEAD"):
            reply = await front_end.request(method, path, headers={"Accept-Encoding": "identity"}, token=None)
            assert reply.status == 200, path
            assert {name: reply.headers.get(name) for name in HEADERS} == HEADERS
            assert reply.headers["Content-Type"] == CONTENT_TYPES[Path(name).suffix]
            assert "Set-Cookie" not in reply.headers
            assert reply.body == ((FOLDER / name).read_bytes() if method == "GET" else b"")


@covers("B4")
async def test_a_page_cannot_run_or_load_what_is_not_ours() -> None:
    policy = dict(part.strip().split(" ", 1) for part in HEADERS["Content-Security-Policy"].split(";"))
    assert policy.pop("img-src") == "'self' data:"
    assert set(policy.values()) == {"'self'", "'none'"}
    assert [name for name, value in policy.items() if value == "'self'"] == [
        "script-src",
        "style-src",
        "connect-src",
        "font-src",
    ]


@covers("B4")
async def test_a_browser_that_has_a_file_is_told_so(front_end: RunningFrontEnd) -> None:
    etag = (await front_end.request("GET", "/", token=None)).headers["Etag"]
    for match in (etag, f'"other", {etag}'):
        reply = await front_end.request("GET", "/", headers={"If-None-Match": match}, token=None)
        assert (reply.status, reply.body) == (304, b"")
        assert {name: reply.headers.get(name) for name in HEADERS} == HEADERS
    assert (await front_end.request("GET", "/", headers={"If-None-Match": '"other"'}, token=None)).status == 200


@covers("B4")
async def test_files_are_compressed_for_who_wants_that(front_end: RunningFrontEnd) -> None:
    head = b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nAccept-Encoding: "
    for wish, is_compressed in ((b"br, gzip", True), (b"gzip;q=0.5", True), (b"gzip;q=0", False), (b"br", False)):
        answer = await front_end.raw(head + wish + b"\r\n\r\n")
        headers, _, body = answer.partition(b"\r\n\r\n")
        assert (b"Content-Encoding: gzip" in headers) == is_compressed
        assert (gzip.decompress(body) if is_compressed else body) == (FOLDER / "index.html").read_bytes()


@covers("B4")
@pytest.mark.parametrize(
    "path",
    [
        "/$dashboard/nothing.js",
        "/$dashboard/INDEX.HTML",
        "/$dashboard/../limits.py",
        "/$dashboard/..%2flimits.py",
        "/%24dashboard/%2e%2e/limits.py",
        "/$dashboard//etc/passwd",
        "/$dashboard/index.html%00.js",
        "/$dashboard/./index.html",
    ],
)
async def test_what_is_no_file_of_the_dashboard_is_not_there(front_end: RunningFrontEnd, path: str) -> None:
    answer = await front_end.raw(f"GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n".encode())
    assert b" 404 " in answer.partition(b"\r\n")[0]


@covers("B4")
async def test_the_page_is_no_answer_to_who_shows_a_token_or_changes_something(front_end: RunningFrontEnd) -> None:
    assert refusal(await front_end.request("GET", "/"))[0] != 200
    for method in ("POST", "PUT", "DELETE"):
        assert (await front_end.request(method, "/", token=None)).status in (400, 401, 404, 405)
        assert (await front_end.request(method, "/$dashboard/index.html", token=None)).status == 405


@covers("B4")
async def test_files_of_unknown_kinds_are_left_out(tmp_path: Path) -> None:
    for name in ("a.js", "b.py", "c", "d.map"):
        (tmp_path / name).write_text("x")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "e.css").write_text("x")
    assert StaticFiles(tmp_path).names == ["a.js", "deep/e.css"]


def test_every_file_of_the_dashboard_is_of_a_known_kind() -> None:
    assert sorted(StaticFiles().names) == sorted(on_disk())
