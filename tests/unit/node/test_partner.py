"""The other namespace of a pair, as a namespace finds and asks it."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from click.testing import CliRunner

from tandembus.cli import main
from tandembus.clock import ManualClock, SystemClock
from tandembus.config import ConfigurationError, ServeSettings, load_settings
from tandembus.errors import BusError, InvalidArgument, StoreUnavailable, Unauthorized
from tandembus.node.partner import MAX_ANSWER_BYTES, Partner, address_from, address_in, partner_of
from tandembus.security.key_file import ensure_key
from tandembus.security.sas import make_connection_string, parse_token
from tandembus.security.tls import ensure_certificate, server_context
from tests.covers import covers

KEY = "dGhlIGtleSBvZiB0aGUgdGVzdHM="


@asynccontextmanager
async def answering(
    answer: web.StreamResponse, seen: list[web.BaseRequest] | None = None, tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        if seen is not None:
            seen.append(request)
        return answer

    runner = web.ServerRunner(web.Server(handle))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def at(port: int) -> Partner:
    text = make_connection_string("127.0.0.1", port, "policy", KEY, use_emulator=True)
    partner = partner_of(ServeSettings(partner=text), ManualClock())
    assert partner is not None
    return partner


@covers("B4")
async def test_a_partner_is_asked_with_a_token_of_its_own_key() -> None:
    seen: list[web.BaseRequest] = []
    async with answering(web.json_response({"a": 1}), seen) as port:
        partner = at(port)
        assert await partner.ask("/$api/overview?alone=1") == {"a": 1}
        assert partner.name() == "127.0.0.1"
        await partner.close()
    token = parse_token(seen[0].headers["Authorization"])
    assert token.is_signed_with(KEY)
    assert (token.policy, seen[0].path_qs) == ("policy", "/$api/overview?alone=1")


@covers("B4")
@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (web.Response(status=401), Unauthorized),
        (web.Response(status=302, headers={"Location": "http://127.0.0.1:1/"}), StoreUnavailable),
        (web.Response(status=500), StoreUnavailable),
        (web.Response(text="hello"), BusError),
        (web.Response(text="[1]"), StoreUnavailable),
        (web.Response(text="[" * 100_000), BusError),
        (web.Response(body=b" " * (MAX_ANSWER_BYTES + 1)), StoreUnavailable),
    ],
    ids=["refused", "elsewhere", "failed", "text", "array", "deep", "large"],
)
async def test_what_is_no_answer_of_a_namespace_is_told_as_such(
    answer: web.StreamResponse, error: type[BusError]
) -> None:
    async with answering(answer) as port:
        partner = at(port)
        with pytest.raises(error) as told:
            await partner.ask("/")
        await partner.close()
        assert KEY not in str(told.value)


@covers("B4")
async def test_one_that_is_not_there_cannot_be_reached() -> None:
    async with answering(web.Response()) as port:
        partner = at(port)
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        await partner.ask("/")
    await partner.close()


@covers("B4")
async def test_a_partner_over_tls_is_trusted_by_the_certificates_that_are_given(tmp_path: Path) -> None:
    clock = SystemClock()
    files = ensure_certificate(tmp_path / "tls", ["localhost"], clock.now())
    assert files.ca_path is not None
    async with answering(web.json_response({"a": 1}), tls=server_context(files)) as port:
        text = make_connection_string("localhost", port, "policy", KEY, use_emulator=False)
        for certificates in (files.ca_path, None):
            partner = partner_of(ServeSettings(partner=text, partner_ca=certificates), clock)
            assert partner is not None
            if certificates is None:
                with pytest.raises(StoreUnavailable, match="certificate verify failed"):
                    await partner.ask("/")
            else:
                assert await partner.ask("/") == {"a": 1}
            await partner.close()


@covers("B4")
def test_certificates_that_are_none_are_refused_before_anything_is_started(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nonsense")
    partner = "Endpoint=sb://a.example/;SharedAccessKeyName=n;SharedAccessKey=a2V5"
    for name in ("ca.pem", "missing.pem"):
        options = ["--data", str(tmp_path / "data"), "--partner", partner, "--partner-ca", str(tmp_path / name)]
        result = CliRunner().invoke(main, ["serve", *options])
        assert result.exit_code != 0
        assert "partner_ca" in result.stderr
    assert not (tmp_path / "data").exists()


@covers("B4")
def test_a_partner_on_this_machine_is_found_by_its_folder(tmp_path: Path) -> None:
    partner = partner_of(ServeSettings(partner_data=tmp_path / "other"), ManualClock())
    assert partner is not None
    assert partner.name() is None
    with pytest.raises(StoreUnavailable, match="never started"):
        address_from(tmp_path / "other")
    key = ensure_key(tmp_path / "other")
    facts = {"name": "fabrikam", "host": "localhost", "http_port": 5310}
    (tmp_path / "other" / "namespace.json").write_text(json.dumps(facts))
    address = address_from(tmp_path / "other")
    assert (address.name, address.base_url, address.key) == ("fabrikam", "http://localhost:5310", key)
    assert partner.name() == "fabrikam"
    assert key not in repr(address)
    (tmp_path / "other" / "namespace.json").write_text("[]")
    with pytest.raises(StoreUnavailable):
        address_from(tmp_path / "other")


@covers("B4")
@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("Endpoint=sb://a.example/;SharedAccessKeyName=n;SharedAccessKey=k", "https://a.example:443"),
        ("Endpoint=sb://a.example:7/;SharedAccessKeyName=n;SharedAccessKey=k", "https://a.example:7"),
        (
            "Endpoint=sb://[::1]/;SharedAccessKeyName=n;SharedAccessKey=k;UseDevelopmentEmulator=true",
            "http://[::1]:5300",
        ),
    ],
)
def test_a_connection_string_says_where_it_is(text: str, url: str) -> None:
    assert address_in(text).base_url == url


@covers("B4")
def test_a_partner_without_a_key_or_in_two_places_is_refused(tmp_path: Path) -> None:
    assert partner_of(ServeSettings(), ManualClock()) is None
    for text in ("nonsense", "Endpoint=sb://a/"):
        with pytest.raises(InvalidArgument):
            partner_of(ServeSettings(partner=text), ManualClock())
    with pytest.raises(ConfigurationError) as told:
        load_settings(None, {"TANDEMBUS_PARTNER": f"x={KEY}", "TANDEMBUS_PARTNER_DATA": str(tmp_path)})
    assert KEY not in str(told.value)
    assert KEY not in repr(ServeSettings(partner=KEY))
