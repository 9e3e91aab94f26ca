"""Signing in to the dashboard: what opens a session, what it is worth, and what ends it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import ssl
from pathlib import Path
from typing import cast

import aiohttp
import pytest

from tandembus.clock import ManualClock
from tandembus.descriptions import AuthorizationRule, QueueDescription
from tandembus.front_end.http.api.session import SESSION_LIFETIME_S
from tandembus.front_end.http.connection import HttpTimings
from tandembus.namespace.policies import KeyKind
from tandembus.security.claims import Policy, Right
from tandembus.security.tls import ensure_certificate, server_context
from tests.covers import covers
from tests.unit.front_end.http.api.browser import OURS, Browser, connection_string, document_of, error_of
from tests.unit.front_end.http.harness import KEY, ROOT, RunningFrontEnd, running_front_end

COOKIE = f"tandembus-{hashlib.sha256(b'contoso').hexdigest()[:8]}"
LISTENER = AuthorizationRule("listener", "bGlzdGVuIGhlcmU=", "c2Vjb25kIGtleQ==", frozenset(["Listen"]))


@covers("B4")
async def test_a_key_a_connection_string_or_a_code_opens_a_session(front_end: RunningFrontEnd) -> None:
    assert front_end.surroundings.codes is not None
    for wanted in (
        {"key_name": ROOT, "key": KEY},
        {"connection_string": connection_string(front_end, ROOT, KEY)},
        {"connection_string": f"Endpoint=sb://x/;SharedAccessSignature={front_end.token()}"},
        {"code": front_end.surroundings.codes.make(front_end.clock.now())},
    ):
        browser = Browser(front_end)
        reply = await browser.ask("POST", "session", wanted)
        assert reply.status == 200, reply.text
        session = document_of(reply)
        assert (session["namespace"], session["policy"], session["scope"]) == ("contoso", ROOT, "")
        assert session["rights"] == ["Listen", "Manage", "Send"]
        assert document_of(await browser.ask("GET", "session")) == session
        assert (await browser.request("GET", "/$policies")).status == 200


@covers("B4")
async def test_the_cookie_is_out_of_reach_for_scripts_and_other_sites(browser: Browser) -> None:
    reply = await browser.sign_in()
    name, _, rest = reply.headers["Set-Cookie"].partition("=")
    value, *attributes = rest.split("; ")
    assert name == COOKIE
    assert attributes == ["Path=/", f"Max-Age={int(SESSION_LIFETIME_S)}", "HttpOnly", "SameSite=Strict"]
    assert not set(value) & set(' ",;\\')


@covers("B4")
async def test_inside_tls_the_cookie_stays_inside_tls(tmp_path: Path) -> None:
    files = ensure_certificate(tmp_path / "tls", ["localhost"], 1_700_000_000.0, None, None)
    async with running_front_end(tmp_path, tls=server_context(files)) as front_end:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        url = f"https://127.0.0.1:{front_end.port}/$api/session"
        async with aiohttp.ClientSession() as session:
            async with session.post(url, json={"key_name": ROOT, "key": KEY}, headers=OURS, ssl=context) as response:
                cookie = response.headers["Set-Cookie"]
            assert cookie.startswith(f"__Host-{COOKIE}=")
            assert cookie.endswith("; Secure")
            sent = {**OURS, "Cookie": cookie.partition(";")[0]}
            async with session.get(url, headers=sent, ssl=context) as response:
                assert response.status == 200
            sent = {**OURS, "Cookie": cookie.partition(";")[0].removeprefix("__Host-")}
            async with session.get(url, headers=sent, ssl=context) as response:
                assert response.status == 204


@covers("B4")
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"X-Tandembus": "0"},
        {"X-Tandembus": ""},
        {**OURS, "Sec-Fetch-Site": "cross-site"},
        {**OURS, "Sec-Fetch-Site": "same-site"},
        {**OURS, "Sec-Fetch-Site": "none"},
        {**OURS, "Origin": "https://evil.example"},
        {**OURS, "Origin": "null"},
        {**OURS, "Origin": "http://127.0.0.1"},
        {**OURS, "Origin": "http://[::1"},
        {**OURS, "Origin": ""},
    ],
    ids=str,
)
async def test_a_request_that_another_site_may_have_caused_has_no_session(
    browser: Browser, headers: dict[str, str]
) -> None:
    await browser.sign_in()
    assert (await browser.request("GET", "/$api/session", headers=headers)).status == 204
    for method, path in (("GET", "/$faults"), ("GET", "/$policies"), ("DELETE", "/orders")):
        assert (await browser.request(method, path, headers=headers)).status == 401
    for method, document in (("POST", {"key_name": ROOT, "key": KEY}), ("DELETE", None)):
        reply = await browser.ask(method, "session", document, headers)
        assert reply.status == 403
        assert "Set-Cookie" not in reply.headers


@covers("B4")
async def test_our_own_page_is_known_by_what_the_browser_says_of_it(browser: Browser) -> None:
    await browser.sign_in()
    host = f"127.0.0.1:{browser.front_end.port}"
    for origin in (f"http://{host}", f"https://{host}"):  # the latter from behind a proxy
        headers = {**OURS, "Sec-Fetch-Site": "same-origin", "Origin": origin}
        assert (await browser.ask("GET", "session", headers=headers)).status == 200


@covers("B4", "M15")
async def test_the_cookie_of_another_namespace_or_two_of_them_are_none(browser: Browser) -> None:
    await browser.sign_in()
    value = browser.cookies[COOKIE]
    other = f"tandembus-{hashlib.sha256(b'fabrikam').hexdigest()[:8]}"
    for cookie in (
        f"{other}={value}",
        f"{COOKIE}={value}; {COOKIE}={value}",
        f"__Host-{COOKIE}={value}",
        f"{COOKIE.upper()}={value}",
        f'{COOKIE}="{value}"',
        f"{COOKIE}=",
        COOKIE,
    ):
        reply = await browser.ask("GET", "session", headers={**OURS, "Cookie": cookie})
        assert reply.status == 204, cookie
    cookie = f"a=b; {other}=x; {COOKIE}={value};"
    assert (await browser.ask("GET", "session", headers={**OURS, "Cookie": cookie})).status == 200


@covers("B4", "M15")
async def test_a_token_in_the_header_goes_before_the_cookie(browser: Browser) -> None:
    await browser.sign_in()
    sent = {**OURS, "Authorization": browser.front_end.token(key="d3Jvbmc=")}
    assert (await browser.ask("GET", "session", headers=sent)).status == 401


@covers("B4", "M15")
async def test_a_session_of_an_entity_s_key_is_worth_that_entity(browser: Browser) -> None:
    front_end = browser.front_end
    mine = QueueDescription("Orders", authorization_rules=(LISTENER,))
    await front_end.namespace.create_queue(mine)
    await front_end.namespace.create_queue(QueueDescription("invoices"))
    reply = await browser.sign_in("listener", LISTENER.primary_key)
    assert reply.status == 401  # it is no key of the namespace
    for wanted in (
        {"key_name": "listener", "key": LISTENER.secondary_key, "entity": "orders"},
        {"connection_string": connection_string(front_end, "listener", LISTENER.primary_key, "orders")},
    ):
        reply = await browser.ask("POST", "session", wanted)
        assert (document_of(reply)["scope"], document_of(reply)["rights"]) == ("Orders", ["Listen"])
        assert (await browser.request("POST", "/orders/$purge")).status == 200
        assert (await browser.request("POST", "/invoices/$purge")).status == 403
        assert (await browser.request("DELETE", "/orders")).status == 403


@covers("B4", "M15")
async def test_a_key_of_the_namespace_with_an_entity_is_narrowed_to_it(browser: Browser) -> None:
    front_end = browser.front_end
    for name in ("orders", "invoices"):
        await front_end.namespace.create_queue(QueueDescription(name))
    text = connection_string(front_end, ROOT, KEY, "orders")
    assert (await browser.ask("POST", "session", {"connection_string": text})).status == 200
    assert (await browser.request("GET", "/orders")).status == 200
    assert (await browser.request("GET", "/invoices")).status == 403
    assert (await browser.request("GET", "/$policies")).status == 403


@covers("B4", "M15")
async def test_a_regenerated_key_ends_its_sessions_at_once(browser: Browser) -> None:
    front_end = browser.front_end
    await front_end.namespace.put_policy(LISTENER)
    await browser.sign_in("listener", LISTENER.primary_key)
    await front_end.namespace.regenerate_key("listener", KeyKind.SECONDARY)
    assert (await browser.ask("GET", "session")).status == 200
    await front_end.namespace.regenerate_key("listener", KeyKind.PRIMARY)
    assert (await browser.ask("GET", "session")).status == 204


@covers("B4", "M15")
async def test_what_a_policy_may_changes_with_it(browser: Browser) -> None:
    front_end = browser.front_end
    front_end.authorizer.set_policies("", [Policy("a", "a2V5", "", frozenset([Right.LISTEN]))])
    await browser.sign_in("a", "a2V5")
    assert document_of(await browser.ask("GET", "session"))["rights"] == ["Listen"]
    front_end.authorizer.set_policies("", [Policy("a", "a2V5", "", frozenset([Right.SEND]))])
    assert document_of(await browser.ask("GET", "session"))["rights"] == ["Send"]
    front_end.authorizer.set_policies("", [])
    assert (await browser.ask("GET", "session")).status == 204


@covers("B4", "M15")
async def test_a_session_ends_after_its_time_and_when_its_user_says_so(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_front_end(tmp_path, clock=clock) as front_end:
        browser = Browser(front_end)
        await browser.sign_in()
        clock.advance(SESSION_LIFETIME_S - 1.0)
        assert (await browser.ask("GET", "session")).status == 200
        clock.advance(1.0)
        assert (await browser.ask("GET", "session")).status == 204
        await browser.sign_in()
        reply = await browser.ask("DELETE", "session")
        assert reply.status == 204
        assert "Max-Age=0" in reply.headers["Set-Cookie"]
        assert browser.cookies == {}
        assert (await browser.ask("GET", "session")).status == 204


@covers("B4", "M15")
async def test_a_session_is_never_longer_than_the_token_it_was_opened_with(browser: Browser) -> None:
    token = browser.front_end.token(lifetime_s=100.0)
    wanted = {"connection_string": f"Endpoint=sb://x/;SharedAccessSignature={token}"}
    reply = await browser.ask("POST", "session", wanted)
    assert any(f"Max-Age={seconds};" in reply.headers["Set-Cookie"] for seconds in range(90, 101))


@covers("B4", "M15")
@pytest.mark.parametrize(
    "wanted",
    [
        {"key_name": ROOT, "key": "d3Jvbmc="},
        {"key_name": "nobody", "key": KEY},
        {"key_name": ROOT.lower(), "key": KEY},
        {"key_name": ROOT, "key": ""},
        {"key_name": "", "key": KEY},
        {"key_name": ROOT, "key": KEY, "entity": "a\u0020b/../.."},
        {"code": ""},
        {"code": "A" * 43},
        {"code": "../../key"},
        {"code": "\u212a" * 43},
        {"connection_string": f"Endpoint=sb://x/;SharedAccessKeyName={ROOT};SharedAccessKey=wrong"},
        {"connection_string": "Endpoint=sb://x/;SharedAccessSignature=eyJhbGciOiJub25lIn0.e30."},
        {"connection_string": "Endpoint=sb://x/;SharedAccessSignature=SharedAccessSignature sr=a&sig=b&se=1&skn=c"},
    ],
    ids=str,
)
async def test_what_is_wrong_opens_nothing_and_is_not_repeated(browser: Browser, wanted: dict[str, str]) -> None:
    reply = await browser.ask("POST", "session", wanted)
    if "entity" in wanted:  # the key is right, and worth nothing that there is
        assert document_of(reply)["scope"] != ""
        return
    assert reply.status == 401
    assert "Set-Cookie" not in reply.headers
    assert error_of(reply) == "What you sign in with is wrong, or not valid any more."
    assert browser.front_end.claims_shown == 0


HOSTILE: list[object] = [
    [],
    {},
    "text",
    None,
    {"code": None},
    {"code": 5},
    {"code": ["a"]},
    {"code": "a", "key": "b"},
    {"key_name": ROOT},
    {"key": KEY},
    {"key_name": ROOT, "key": {"$ne": 1}},
    {"key_name": "a\r\nSet-Cookie: x", "key": KEY},
    {"key_name": ROOT, "key": f"{KEY}\0"},
    {"key_name": "\ud800", "key": KEY},
    {"key_name": ROOT, "key": "\udfff"},
    {"key_name": ROOT, "key": KEY, "entity": "a\nb"},
    {"key_name": "n" * 513, "key": KEY},
    {"key_name": ROOT, "key": "k" * 513},
    {"key_name": ROOT, "key": KEY, "entity": "e" * 513},
    {"connection_string": ""},
    {"connection_string": "Endpoint=sb://x/"},
    {"connection_string": f"SharedAccessKey={KEY}"},
    {"connection_string": f"Endpoint=sb://x/;SharedAccessKey={KEY}"},
    {"connection_string": "a=b;" * 3_000},
    {"connection_string": f"Endpoint=sb://x/;SharedAccessKeyName={ROOT};SharedAccessKey={KEY}\x7f"},
]


@covers("B4", "M15")
@pytest.mark.parametrize("wanted", HOSTILE, ids=lambda one: ascii(one)[:60])
async def test_nonsense_is_refused_without_repeating_what_may_be_a_key(browser: Browser, wanted: object) -> None:
    reply = await browser.ask("POST", "session", wanted, {**OURS, "Content-Type": "application/json"})
    assert reply.status in (400, 401)
    assert "Set-Cookie" not in reply.headers
    assert KEY not in reply.text
    assert "kkkk" not in reply.text


@covers("B4")
@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({"Content-Type": "text/plain"}, b"{}", 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, b"code=a", 415),
        ({"Content-Type": "application/json", "Content-Encoding": "gzip"}, b"{}", 415),
        ({"Content-Type": "application/json"}, b'{"code": "' + b"a" * 20_000 + b'"}', 413),
        ({"Content-Type": "application/json"}, b'{"code": "a", "code": "b"}', 400),
        ({"Content-Type": "application/json"}, b"[" * 10_000, 400),
        ({"Content-Type": "application/json"}, b"\xff\xfe", 400),
    ],
)
async def test_a_body_that_is_no_small_document_is_refused(
    front_end: RunningFrontEnd, headers: dict[str, str], body: bytes, status: int
) -> None:
    reply = await front_end.request("POST", "/$api/session", body, {**OURS, **headers}, token=None)
    assert (reply.status, json.loads(reply.body)["error"]["status"]) == (status, status)


@covers("B4")
async def test_an_answer_never_repeats_the_key_but_in_its_cookie_s_signature(browser: Browser) -> None:
    reply = await browser.sign_in()
    assert KEY not in reply.text
    assert KEY not in str(reply.headers)


@covers("B4", "M15")
async def test_guessing_is_slow_and_a_right_key_is_not_kept_waiting(tmp_path: Path) -> None:
    async with running_front_end(tmp_path, timings=HttpTimings(refused_sign_in_s=600.0)) as front_end:
        guess = asyncio.create_task(Browser(front_end).sign_in(key="d3Jvbmc="))
        for _ in range(3):
            assert (await Browser(front_end).sign_in()).status == 200
        assert not guess.done()
        guess.cancel()
        await asyncio.gather(guess, return_exceptions=True)


async def guessed(front_end: RunningFrontEnd, address: str, key: str = "d3Jvbmc=") -> int:
    """The status of one sign-in with this key, from this address."""
    connector = aiohttp.TCPConnector(local_addr=(address, 0))
    url = f"http://127.0.0.1:{front_end.port}/$api/session"
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.post(url, json={"key_name": ROOT, "key": key}, headers=OURS) as response,
    ):
        assert response.status != 429 or int(response.headers["Retry-After"]) >= 1
        return response.status


@covers("B4", "M15", "F16")
async def test_one_address_may_try_a_few_keys_and_then_one_now_and_then(tmp_path: Path) -> None:
    clock, timings = ManualClock(), HttpTimings(refused_sign_in_s=0.0)
    async with running_front_end(tmp_path, timings=timings, clock=clock) as front_end:
        browser = Browser(front_end)
        for _ in range(20):
            assert (await browser.sign_in()).status == 200
        guesses = await asyncio.gather(*[browser.sign_in(key="d3Jvbmc=") for _ in range(15)])
        assert sorted(reply.status for reply in guesses) == [401] * 10 + [429] * 5
        reply = await browser.sign_in()
        assert (reply.status, reply.headers["Retry-After"]) == (429, "6")
        assert error_of(reply) == "There were too many wrong sign-ins. The next one may be tried in 6 s."
        assert await guessed(front_end, "127.0.0.2", KEY) == 200
        assert front_end.surroundings.codes is not None
        code = front_end.surroundings.codes.make(clock.now())
        assert (await browser.ask("POST", "session", {"code": code})).status == 200
        clock.advance(6.0)
        assert (await browser.sign_in()).status == 200
        assert [(await browser.sign_in(key="d3Jvbmc=")).status for _ in range(2)] == [401, 429]


@covers("B4", "M15", "F16")
async def test_many_addresses_may_not_try_many_keys_together(tmp_path: Path) -> None:
    clock, timings = ManualClock(), HttpTimings(refused_sign_in_s=0.0)
    async with running_front_end(tmp_path, timings=timings, clock=clock) as front_end:
        addresses = [f"127.0.1.{number}" for number in range(1, 22)]
        statuses = [await guessed(front_end, address) for address in addresses for _ in range(5)]
        assert statuses == [401] * 100 + [429] * 5
        clock.advance(2.0)
        assert [await guessed(front_end, "127.0.2.1") for _ in range(3)] == [401, 401, 429]


@covers("B4")
async def test_one_can_sign_in_to_a_namespace_that_a_fault_has_put_out(browser: Browser) -> None:
    await browser.sign_in()
    fault = {"target": "namespace", "kind": "unavailable"}
    assert (await browser.request("PUT", "/$faults/all", fault)).status in (200, 201)
    assert (await browser.sign_in()).status == 200
    assert (await browser.ask("GET", "session")).status == 200
    assert (await browser.request("GET", "/$policies")).status == 500
    assert (await browser.request("DELETE", "/$faults")).status == 200


@covers("B4")
async def test_a_session_tells_the_limits_that_forms_need(browser: Browser) -> None:
    limits = cast(dict[str, object], document_of(await browser.sign_in())["limits"])
    assert limits["max_message_size_bytes"] == browser.front_end.namespace.limits.max_message_size_bytes
