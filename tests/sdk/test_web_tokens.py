"""JSON web tokens of trusted issuers, as the SDK's token credentials show them."""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import jwt
import pytest
from azure.core.credentials import AccessToken
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSender
from azure.servicebus._pyamqp.error import TokenAuthFailure
from azure.servicebus.exceptions import ServiceBusAuthorizationError, ServiceBusError
from azure.servicebus.management import ServiceBusAdministrationClient
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from tests.covers import covers
from tests.integration.bus import Bus
from tests.integration.serving import RunningNamespace, start_namespace

AUDIENCE = "https://servicebus.azure.net/"
BY_FILE, BY_URL = "https://by-file.example/", "https://by-url.example/"
OWNER, SENDER = "Azure Service Bus Data Owner", "Azure Service Bus Data Sender"
SETTINGS = """
[limits]
token_check_interval_s = 0.2

[[issuers]]
issuer = "{by_file}"
audience = ["{audience}"]
jwks = "{file}"
clock_skew_s = 600.0

[[issuers]]
issuer = "{by_url}"
audience = ["orders"]
jwks = "{url}"
role_claim = "realm_access.roles"
manage_roles = ["admin"]
listen_roles = ["reader"]
"""
READ_WITHIN_S = 20.0


@dataclass
class Issuer:
    """Signs tokens, and publishes its keys."""

    name: str
    audience: object
    private_keys: dict[str, Any] = field(default_factory=dict)

    def add_key(self, key_id: str) -> None:
        """An RSA key, or one on a curve for names that begin with 'ec'."""
        is_curve = key_id.startswith("ec")
        self.private_keys[key_id] = (
            ec.generate_private_key(ec.SECP256R1()) if is_curve else rsa.generate_private_key(65537, 2048)
        )

    def document(self) -> str:
        keys = []
        for key_id, key in self.private_keys.items():
            algorithm = ECAlgorithm if key_id.startswith("ec") else RSAAlgorithm
            keys.append({**algorithm.to_jwk(key.public_key(), as_dict=True), "kid": key_id, "use": "sig"})
        return json.dumps({"keys": keys})

    def token(self, key_id: str = "one", /, **claims: object) -> str:
        """Claims that are None are left out."""
        usual = {"iss": self.name, "aud": self.audience, "exp": time.time() + 600, "sub": "somebody"}
        payload = {name: value for name, value in {**usual, **claims}.items() if value is not None}
        algorithm = "ES256" if key_id.startswith("ec") else "RS256"
        return jwt.encode(payload, self.private_keys[key_id], algorithm, headers={"kid": key_id})


class Credential:
    """A token credential with one token."""

    def __init__(self, token: str) -> None:
        self._token = token

    def get_token(self, *scopes: str, **options: object) -> AccessToken:
        return AccessToken(self._token, int(time.time()) + 600)


class KeyServer:
    """Serves the keys of an issuer as they are now."""

    def __init__(self, issuer: Issuer) -> None:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                content = issuer.document().encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None: ...

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/keys"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture(scope="module")
def by_file() -> Issuer:
    issuer = Issuer(BY_FILE, [AUDIENCE.rstrip("/")])
    issuer.add_key("one")
    issuer.add_key("ec-two")
    return issuer


@pytest.fixture(scope="module")
def by_url() -> Issuer:
    issuer = Issuer(BY_URL, "orders")
    issuer.add_key("one")
    return issuer


@pytest.fixture(scope="module")
def running(by_file: Issuer, by_url: Issuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNamespace]:
    folder = tmp_path_factory.mktemp("issuers")
    (folder / "keys.json").write_text(by_file.document())
    keys = KeyServer(by_url)
    settings = folder / "settings.toml"
    settings.write_text(
        SETTINGS.format(by_file=BY_FILE, by_url=BY_URL, audience=AUDIENCE, file=folder / "keys.json", url=keys.url)
    )
    namespace = start_namespace(folder / "data", "--config", str(settings))
    yield namespace
    namespace.stop_in_peace()
    keys.stop()


@pytest.fixture(scope="module")
def queue(running: RunningNamespace) -> str:
    return Bus(running).make_queue()


def client(running: RunningNamespace, token: str, **options: Any) -> ServiceBusClient:
    return ServiceBusClient(
        "localhost",
        Credential(token),
        custom_endpoint_address=f"https://localhost:{running.port}",
        connection_verify=str(running.ca_path),
        retry_total=0,
        **options,
    )


def send(running: RunningNamespace, queue: str, token: str) -> None:
    with client(running, token) as sdk, sdk.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage("by token"))


def receive(running: RunningNamespace, queue: str, token: str) -> list[str]:
    with client(running, token) as sdk, sdk.get_queue_receiver(queue, receive_mode="receiveanddelete") as receiver:
        return [str(message) for message in receiver.receive_messages(1, max_wait_time=10)]


def assert_refused(running: RunningNamespace, queue: str, token: str, reason: str) -> None:
    """Behind a custom endpoint the SDK calls a refused token a connection error; what is inside says more."""
    with pytest.raises(ServiceBusError) as caught:
        send(running, queue, token)
    inner = caught.value.inner_exception
    assert isinstance(inner, TokenAuthFailure)
    assert inner.status_code == 401
    assert reason in str(inner.status_description)


@covers("M15", "B1")
@pytest.mark.parametrize("is_partitioned", [False, True])
@pytest.mark.parametrize("key_id", ["one", "ec-two"])
def test_a_token_of_a_trusted_issuer_opens_links_and_administration(
    running: RunningNamespace, by_file: Issuer, key_id: str, is_partitioned: bool
) -> None:
    queue = Bus(running).make_queue(enable_partitioning=is_partitioned)
    token = by_file.token(key_id, roles=["other", OWNER])
    send(running, queue, token)
    assert receive(running, queue, token) == ["by token"]
    with ServiceBusAdministrationClient(
        f"localhost:{running.port}", Credential(token), connection_verify=str(running.ca_path)
    ) as admin:
        assert admin.get_queue(queue).name == queue


@covers("M15")
def test_roles_grant_their_rights_and_no_others(running: RunningNamespace, queue: str, by_file: Issuer) -> None:
    token = by_file.token(roles=[SENDER])
    send(running, queue, token)
    with pytest.raises(ServiceBusAuthorizationError, match="Listen"):
        receive(running, queue, token)


@covers("M15")
@pytest.mark.parametrize(
    ("claim", "reason"), [("exp", "has expired"), ("nbf", "not valid yet"), ("iat", "not valid yet")]
)
def test_the_clock_of_an_issuer_may_be_off_as_far_as_it_is_set(
    running: RunningNamespace, queue: str, by_file: Issuer, claim: str, reason: str
) -> None:
    by_s = -1.0 if claim == "exp" else 1.0
    send(running, queue, by_file.token(roles=[SENDER], **{claim: time.time() + by_s * 300}))
    assert receive(running, queue, by_file.token(roles=[OWNER])) == ["by token"]
    assert_refused(running, queue, by_file.token(roles=[OWNER], **{claim: time.time() + by_s * 900}), reason)


@covers("M15")
def test_roles_may_lie_in_a_nested_claim(running: RunningNamespace, queue: str, by_url: Issuer) -> None:
    send(running, queue, by_url.token(realm_access={"roles": ["admin"]}))
    assert receive(running, queue, by_url.token(realm_access={"roles": ["reader"]})) == ["by token"]
    with pytest.raises(ServiceBusAuthorizationError, match="Send"):
        send(running, queue, by_url.token(realm_access={"roles": ["reader"]}))


@covers("M15", "F16")
@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        pytest.param({"exp": 1_700_000_000}, "has expired", id="expired"),
        pytest.param({"exp": None}, "no expiry", id="no expiry"),
        pytest.param({"nbf": 4_000_000_000}, "not valid yet", id="not valid yet"),
        pytest.param({"iss": "https://somebody.example/"}, "is not trusted", id="unknown issuer"),
        pytest.param({"iss": BY_URL}, "signature is wrong", id="another issuer's name"),
        pytest.param({"aud": "orders"}, "another audience", id="audience of another issuer"),
        pytest.param({"aud": None}, "another audience", id="no audience"),
        pytest.param({"roles": ["Reader"]}, "grant no right", id="no role that counts"),
        pytest.param({"roles": OWNER.encode().hex()}, "grant no right", id="roles that are no list"),
        pytest.param({"roles": {"Azure Service Bus Data Owner": True}}, "grant no right", id="roles as an object"),
    ],
)
def test_claims_that_do_not_fit_are_refused(
    running: RunningNamespace, queue: str, by_file: Issuer, claims: dict[str, object], reason: str
) -> None:
    assert_refused(running, queue, by_file.token(**{"roles": [OWNER], **claims}), reason)


@covers("M15", "F16")
def test_signatures_that_do_not_fit_are_refused(running: RunningNamespace, queue: str, by_file: Issuer) -> None:
    payload = {"iss": BY_FILE, "aud": AUDIENCE, "exp": time.time() + 600, "roles": [OWNER]}
    stranger = Issuer(BY_FILE, AUDIENCE)
    stranger.add_key("one")
    stranger.add_key("three")
    public = json.loads(by_file.document())["keys"][0]["n"]
    good = by_file.token(roles=[OWNER])
    header, _, signature = good.split(".")
    other_payload = by_file.token(roles=[OWNER], sub="somebody else").split(".")[1]
    for token, reason in (
        (jwt.encode(payload, "", "none") + signature, "(none) is of a kind not accepted"),
        (jwt.encode(payload, public, "HS256", {"kid": "one"}), "(HS256) is of a kind not accepted"),
        (jwt.encode(payload, stranger.private_keys["one"], "RS256", {"kid": "one"}), "signature is wrong"),
        (jwt.encode(payload, stranger.private_keys["three"], "RS256", {"kid": "three"}), "unknown key"),
        (jwt.encode(payload, by_file.private_keys["one"], "PS256", {"kid": "one"}), "unknown key"),
        (f"{header}.{other_payload}.{signature}", "signature is wrong"),
        (f"{header}.{other_payload}.", "neither a shared access signature nor a signed"),
    ):
        assert_refused(running, queue, token, reason)


@covers("M15")
def test_a_new_key_is_read_and_a_withdrawn_one_ends_the_links_of_its_tokens(
    running: RunningNamespace, queue: str, by_url: Issuer
) -> None:
    admin = {"roles": ["admin"]}
    with client(running, by_url.token(realm_access=admin)) as sdk, sdk.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage("old key"))
        old_key = by_url.private_keys.pop("one")
        by_url.add_key("new")
        give_up_at = time.monotonic() + READ_WITHIN_S
        while True:  # its first token is refused, and makes the namespace read the keys
            try:
                send(running, queue, by_url.token("new", realm_access=admin))
                break
            except ServiceBusError:
                assert time.monotonic() < give_up_at
        with pytest.raises(ServiceBusError):
            _send_until(sender, give_up_at)
    by_url.private_keys["one"] = old_key


def _send_until(sender: ServiceBusSender, end: float) -> None:
    while time.monotonic() < end:
        sender.send_messages(ServiceBusMessage("after the key was withdrawn"))
