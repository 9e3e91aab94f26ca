"""Tokens and connection strings: made by the real SDKs or by us, read by us; and whatever strangers send."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.servicebus._base_handler import (
    ServiceBusAzureNamedKeyTokenCredential,
    ServiceBusSharedKeyCredential,
    _generate_sas_token,
    _parse_conn_str,
)
from azure.servicebus._pyamqp.utils import generate_sas_token
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tandembus.clock import SystemClock
from tandembus.errors import InvalidArgument, Unauthorized
from tandembus.security.claims import Right
from tandembus.security.sas import (
    ROOT_POLICY,
    ConnectionString,
    make_connection_string,
    make_token,
    parse_connection_string,
    parse_token,
    sign,
)
from tests.covers import covers
from tests.unit.security.signing import HOST, LATER, NOW, ROOT_KEY, SENDER_KEY, make_authorizer, token

AUDIENCES = [
    "sb://localhost/orders",
    "sb://localhost:5673/orders",
    "sb://contoso.servicebus.windows.net/Orders/$management",
    "sb://localhost/orders/$DeadLetterQueue",
    "sb://localhost/orders/Subscriptions/all",
    "https://localhost:5300",
    "https://localhost:5300/",
]


def sdk_token(audience: str, policy: str, key: str, expires_at: int) -> str:
    return str(generate_sas_token(audience, policy, key, expires_at))  # type: ignore[no-untyped-call]


@covers("M15", "B1")
@pytest.mark.parametrize("audience", AUDIENCES)
def test_a_token_of_the_python_sdk_is_accepted(audience: str) -> None:
    text = sdk_token(audience, ROOT_POLICY, ROOT_KEY, LATER)
    claims = make_authorizer().verify_token(text, audience, NOW)
    assert claims.policy == ROOT_POLICY
    assert claims.expires_at == LATER


@covers("M15", "B1")
@pytest.mark.parametrize("audience", AUDIENCES)
def test_a_token_from_the_sdks_credentials_is_accepted_now(audience: str) -> None:
    now = SystemClock().now()
    texts = [
        _generate_sas_token(audience, "sender", SENDER_KEY).token,
        ServiceBusSharedKeyCredential("sender", SENDER_KEY).get_token(audience).token,
        ServiceBusAzureNamedKeyTokenCredential(AzureNamedKeyCredential("sender", SENDER_KEY)).get_token(audience).token,
    ]
    for text in texts:
        claims = make_authorizer().verify_token(text, audience, now)
        assert claims.rights == {Right.SEND}
        assert now + 3_000 < claims.expires_at < now + 4_000


@covers("M15", "B1")
@pytest.mark.parametrize("path", ["orders", "Orders", "orders/$management", "$Resources/queues?api-version=2021-05"])
def test_a_token_as_the_javascript_sdk_makes_it_is_accepted(path: str) -> None:
    # encodeURIComponent leaves !'()* alone; the administration client lower-cases address and escapes, and
    # puts the signature first.
    for uri in (f"{HOST}:5300/{path}", f"https://localhost:5300/{path}".lower()):
        resource = quote(uri, safe="-_.!~*'()")
        resource = resource.lower() if uri.startswith("https") else resource
        signature = quote(sign(resource, str(LATER), ROOT_KEY), safe="-_.!~*'()")
        text = f"SharedAccessSignature sig={signature}&se={LATER}&skn={ROOT_POLICY}&sr={resource}"
        claims = make_authorizer().verify_token(text, path.split("?")[0], NOW)
        assert claims.allows(Right.MANAGE, path.split("?")[0], NOW)


@covers("M15")
@pytest.mark.parametrize("order", ["sr sig se skn", "skn se sig sr", "se skn sr sig", "sig sr skn se"])
def test_the_order_of_a_tokens_fields_is_free(order: str) -> None:
    fields = dict(part.split("=", 1) for part in token().removeprefix("SharedAccessSignature ").split("&"))
    text = "SharedAccessSignature " + "&".join(f"{name}={fields[name]}" for name in order.split())
    assert make_authorizer().verify_token(text, "orders", NOW).policy == ROOT_POLICY


@covers("M15")
def test_a_signature_may_come_with_its_plus_signs_unencoded() -> None:
    for second in range(200):
        text = make_token("sb://localhost/orders", ROOT_POLICY, ROOT_KEY, LATER + second)
        if "%2B" in text:
            assert make_authorizer().verify_token(text.replace("%2B", "+"), "orders", NOW)
            return
    pytest.fail("no signature had a plus sign")


@covers("M15")
def test_our_tokens_are_those_of_the_sdk() -> None:
    ours = make_token("sb://localhost/orders", ROOT_POLICY, ROOT_KEY, LATER)
    theirs = sdk_token("sb://localhost/orders", ROOT_POLICY, ROOT_KEY, LATER)
    assert parse_token(ours) == parse_token(theirs)


@covers("F17")
def test_nothing_secret_shows_in_a_representation() -> None:
    parsed = parse_token(token())
    connection = parse_connection_string(make_connection_string("h", 1, "n", ROOT_KEY))
    shown = repr(parsed) + repr(connection) + repr(make_authorizer().policies()[ROOT_POLICY])
    assert ROOT_KEY not in shown
    assert parsed.signature not in shown


@covers("M15", "F16")
@settings(max_examples=500)
@given(st.one_of(st.text(max_size=300), st.text(max_size=200).map(lambda text: f"SharedAccessSignature {text}")))
@example("SharedAccessSignature sr=%ff&sig=%ff&se=1800000000&skn=%ff")
@example("SharedAccessSignature sr=\ud800&sig=\ud800&se=1800000000&skn=\ud800")
def test_any_text_is_refused_and_nothing_else(text: str) -> None:
    authorizer = make_authorizer(accept_any_jwt=True)
    with pytest.raises(Unauthorized):
        authorizer.verify_token(text, "orders", NOW)


FIELD = st.tuples(st.sampled_from(["sr", "sig", "se", "skn", "x", ""]), st.text(alphabet="aZ09%+/=:.$&", max_size=20))


@covers("F16")
@settings(max_examples=500)
@given(st.lists(FIELD, max_size=8), st.text(max_size=20))
def test_any_fields_are_refused_and_nothing_else(fields: list[tuple[str, str]], audience: str) -> None:
    text = "SharedAccessSignature " + "&".join(f"{name}={value}" for name, value in fields)
    with pytest.raises(Unauthorized):
        make_authorizer().verify_token(text, audience, NOW)


@covers("F16")
@settings(max_examples=300)
@given(st.data())
def test_any_changed_character_makes_a_token_worthless_or_means_the_same(data: st.DataObject) -> None:
    text = token("orders", "sender")
    at = data.draw(st.integers(0, len(text) - 1))
    changed = text[:at] + data.draw(st.characters(codec="ascii")) + text[at + 1 :]
    try:
        claims = make_authorizer().verify_token(changed, None, NOW)
    except Unauthorized:
        return
    # Only what is not signed may differ: the scheme's letters and how the signature or policy is encoded.
    assert claims == make_authorizer().verify_token(text, None, NOW)


@covers("M15", "B1")
@pytest.mark.parametrize("port", [None, 5673])
@pytest.mark.parametrize("entity", [None, "orders"])
@pytest.mark.parametrize("use_emulator", [True, False])
def test_the_sdk_reads_our_connection_strings_as_we_do(
    port: int | None, entity: str | None, use_emulator: bool
) -> None:
    text = make_connection_string("localhost", port, ROOT_POLICY, ROOT_KEY, entity, use_emulator)
    host, policy, key, path, _, _, emulator = _parse_conn_str(text)
    ours = parse_connection_string(text)
    assert (policy, key, path, emulator) == (ours.key_name, ours.key, ours.entity_path, ours.use_emulator)
    assert ours == ConnectionString("localhost", port, ROOT_POLICY, ROOT_KEY, entity, use_emulator)
    assert host.startswith("localhost")


@covers("M15")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Endpoint=sb://h/;SharedAccessKeyName=n;SharedAccessKey=k=", ConnectionString("h", None, "n", "k=")),
        ("endpoint=sb://h;sharedaccesskeyname=n;SHAREDACCESSKEY=k;", ConnectionString("h", None, "n", "k")),
        (
            "Endpoint=sb://[::1]:5672/;SharedAccessKeyName=n;SharedAccessKey=k",
            ConnectionString("::1", 5672, "n", "k"),
        ),
        ("Endpoint=amqps://h:1/x;EntityPath=/q/", ConnectionString("h", 1, entity_path="q")),
        ("Endpoint=h:1", ConnectionString("h", 1)),
        ("Endpoint=sb://h/;UseDevelopmentEmulator=False", ConnectionString("h")),
        (
            "Endpoint=sb://h/;SharedAccessSignature=SharedAccessSignature sr=a&sig=b",
            ConnectionString("h", signature="SharedAccessSignature sr=a&sig=b"),
        ),
    ],
)
def test_connection_strings_are_read(text: str, expected: ConnectionString) -> None:
    assert parse_connection_string(text) == expected


@covers("M15")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "Endpoint",
        "Endpoint=",
        "=sb://h/",
        "SharedAccessKeyName=n;SharedAccessKey=k",
        "Endpoint=sb://h/;SharedAccessKeyName=n",
        "Endpoint=sb://h/;SharedAccessKey=k",
        "Endpoint=sb://h/;Endpoint=sb://i/",
        "Endpoint=sb:///",
        "Endpoint=sb://h:0/",
        "Endpoint=sb://h/;UseDevelopmentEmulator=trueXX",
        "Endpoint=sb://h/;UseDevelopmentEmulator=True",
        "Endpoint=sb://h:65536/",
        "Endpoint=sb://h:x/",
        "Endpoint=sb://[::1/",
        "Endpoint=sb://h/;" + "x" * 10_000,
    ],
)
def test_a_bad_connection_string_is_refused_without_repeating_its_key(text: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        parse_connection_string(text + ";X=secret" if len(text) < 100 else text)
    assert "secret" not in str(refused.value)


@settings(max_examples=300)
@given(st.text(max_size=100), st.sampled_from(["", "Endpoint=", "Endpoint=sb://h/;", "Endpoint=sb://"]))
def test_any_connection_string_is_read_or_refused(text: str, start: str) -> None:
    try:
        parsed = parse_connection_string(start + text)
    except InvalidArgument:
        return
    assert parsed.host


@covers("M15")
@given(
    st.text(
        alphabet=st.characters(codec="ascii", exclude_characters=";", categories=["L", "N", "P", "S"]),
        min_size=1,
    )
)
def test_any_key_survives_in_a_connection_string(key: str) -> None:
    assert parse_connection_string(make_connection_string("h", 1, "n", key)).key == key
