"""Who tries what: every operation with every kind of claim for every scope, and what must come of it.

What covers what is written out by hand here: a mistake in the namespace's own comparison cannot hide in it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tandembus.amqp.encoding import descriptors as codes
from tandembus.amqp.encoding.sections import data_section
from tandembus.amqp.encoding.values import Array, int_, symbol, timestamp, uint
from tandembus.clock import SystemClock
from tandembus.security.sas import make_token
from tests.integration.raw_amqp import FIRST, SETTLED, Frame, Node, RawAmqp, plain, source_of, target_of

HOST = "sb://localhost"
SUBSCRIPTION = "news/subscriptions/audit"
SCOPES = (
    "",
    "orders",
    "orders/$deadletterqueue",
    "orders/$transfer/$deadletterqueue",
    "orders/$management",
    "baskets",
    "news",
    SUBSCRIPTION,
    f"{SUBSCRIPTION}/$deadletterqueue",
    f"{SUBSCRIPTION}/$management",
    "orders/sub",
    "order",
    "orders2",
)
RIGHTS: Mapping[str, frozenset[str]] = {
    "send": frozenset({"Send"}),
    "listen": frozenset({"Listen"}),
    "manage": frozenset({"Manage"}),
    "both": frozenset({"Send", "Listen"}),
}
COVERED_BY: Mapping[str, frozenset[str]] = {
    "orders": frozenset({"", "orders"}),
    "orders2": frozenset({"", "orders2"}),
    "orders/sub": frozenset({"", "orders", "orders/sub"}),
    "orders/sub/$deadletterqueue": frozenset({"", "orders", "orders/sub"}),
    "orders/messages": frozenset({"", "orders"}),
    "orders/sub/$management": frozenset({"", "orders", "orders/sub"}),
    "orders/$deadletterqueue": frozenset({"", "orders", "orders/$deadletterqueue"}),
    "orders/$transfer/$deadletterqueue": frozenset({"", "orders", "orders/$transfer/$deadletterqueue"}),
    "orders/$management": frozenset({"", "orders", "orders/$management"}),
    "orders/$deadletterqueue/$management": frozenset({"", "orders", "orders/$deadletterqueue"}),
    "baskets": frozenset({"", "baskets"}),
    "baskets/$management": frozenset({"", "baskets"}),
    "news": frozenset({"", "news"}),
    "news/$management": frozenset({"", "news"}),
    SUBSCRIPTION: frozenset({"", "news", SUBSCRIPTION}),
    f"{SUBSCRIPTION}/$deadletterqueue": frozenset({"", "news", SUBSCRIPTION, f"{SUBSCRIPTION}/$deadletterqueue"}),
    f"{SUBSCRIPTION}/$management": frozenset({"", "news", SUBSCRIPTION, f"{SUBSCRIPTION}/$management"}),
    "the namespace": frozenset({""}),
    "orders and orders2": frozenset({""}),
    "orders and orders": frozenset({"", "orders"}),
    "news and orders": frozenset({""}),
    f"{SUBSCRIPTION} and news": frozenset({"", "news"}),
    f"{SUBSCRIPTION} and orders": frozenset({""}),
}


@dataclass(frozen=True)
class Credential:
    """A token: of a policy of this place and with these rights, for this scope. Or a password, or nothing."""

    place: str
    rights: str
    scope: str
    is_password: bool = False

    def __str__(self) -> str:
        if not self.rights:
            return "nobody"
        kind = "password" if self.is_password else f"token for '{self.scope}'"
        return f"{self.rights} of {self.place or 'the namespace'}, {kind}"

    @property
    def policy(self) -> str:
        return f"{self.place or 'namespace'}-{self.rights}"

    @property
    def key(self) -> str:
        return f"key-of-{self.policy}"

    def token(self) -> str:
        return make_token(f"{HOST}/{self.scope}", self.policy, self.key, SystemClock().now() + 600.0)

    def allows(self, right: str, target: str) -> bool:
        """What must be: an entity's policy is worth nothing outside of it, so also not for other entities below its
        path, and Manage is everything."""
        if not self.rights or (self.place and (self.scope not in WITHIN[self.place] or is_other(target, self.place))):
            return False
        rights = RIGHTS[self.rights]
        return (right in rights or "Manage" in rights) and self.scope in COVERED_BY[target]


def is_other(target: str, place: str) -> bool:
    return place == "orders" and target.startswith(("orders/sub", "orders/messages"))


WITHIN: Mapping[str, frozenset[str]] = {
    "orders": frozenset({"orders"} | {scope for scope in SCOPES if scope.startswith("orders/$")}),
    "news": frozenset(scope for scope in SCOPES if scope == "news" or scope.startswith("news/")),
}
NOBODY = Credential("", "", "")


def credentials() -> Iterator[Credential]:
    yield NOBODY
    for rights in RIGHTS:
        yield Credential("", rights, "", is_password=True)
        for place in ("", "orders", "news"):
            for scope in SCOPES:
                yield Credential(place, rights, scope)


# Over AMQP.


@dataclass(frozen=True)
class Attempt:
    """An operation, and how to try it; `is_refused` says whether the answer is that it is not allowed."""

    name: str
    right: str
    target: str
    is_refused: Callable[[Visitor], bool]

    def __str__(self) -> str:
        return f"{self.name} at '{self.target}' ({self.right})"


class Visitor:
    """One connection with one credential; every attempt has links of its own on it."""

    def __init__(self, port: int, credential: Credential) -> None:
        self.raw = RawAmqp(port)
        self._handle = 100
        self._nodes: dict[str, Node | None] = {}
        if credential.is_password:
            self.raw.log_in(credential.policy, credential.key)
            return
        self.raw.start()
        self.raw.begin()
        if credential.rights:
            self.raw.put_token(f"{HOST}/{credential.scope}", credential.token())

    def close(self) -> None:
        self.raw.socket.close()

    def next_handle(self) -> int:
        self._handle += 2
        return self._handle

    def attached(self, is_receiver: bool, address: str, *more: object) -> str | None:
        """None when the link is there, else the condition of its refusal."""
        source = source_of(address, *more) if is_receiver else source_of("client")
        target = target_of("client") if is_receiver else target_of(address)
        self.raw.attach(self.next_handle(), is_receiver, source, target)
        return self._refusal(self.raw.expect(codes.ATTACH), is_receiver)

    def attached_via(self, address: str, destination: str) -> str | None:
        """The same for a sender whose messages are for another entity."""
        properties: dict[str, object] = {"com.microsoft:transfer-destination-address": destination}
        self.raw.attach(self.next_handle(), False, source_of("client"), target_of(address), properties=properties)
        return self._refusal(self.raw.expect(codes.ATTACH), False)

    def _refusal(self, answer: Frame, is_receiver: bool) -> str | None:
        if answer[5 if is_receiver else 6] is not None:
            return None
        return str(plain(self.raw.expect(codes.DETACH).error(2)[0]))

    def node(self, address: str) -> Node | None:
        """None where the node cannot even be attached to."""
        if address not in self._nodes:
            self._nodes[address] = self._attach_node(address)
        return self._nodes[address]

    def _attach_node(self, address: str) -> Node | None:
        handle = self.next_handle()
        self.raw.attach(handle, False, source_of("client"), target_of(address))
        if self._refusal(self.raw.expect(codes.ATTACH), False) is not None:
            return None
        self.raw.attach(handle + 1, True, source_of(address), target_of("client"), (SETTLED, FIRST))
        assert self._refusal(self.raw.expect(codes.ATTACH), True) is None
        self.raw.flow(handle + 1, 1000)
        return Node(self.raw, handle, 0)


UNAUTHORIZED = "amqp:unauthorized-access"


def send(path: str) -> Attempt:
    return Attempt("send", "Send", path, lambda visitor: visitor.attached(False, path) == UNAUTHORIZED)


def send_via(path: str, destination: str) -> Attempt:
    """Only who may send to both may send there."""
    target = f"{path} and {destination}"
    return Attempt("send via", "Send", target, lambda visitor: visitor.attached_via(path, destination) == UNAUTHORIZED)


def receive(path: str) -> Attempt:
    return Attempt("receive", "Listen", path, lambda visitor: visitor.attached(True, path) == UNAUTHORIZED)


def receive_session(path: str) -> Attempt:
    """A session of its own each time: it cannot be anybody else's."""

    def is_refused(visitor: Visitor) -> bool:
        session = {symbol("com.microsoft:session-filter"): uuid.uuid4().hex}
        condition = visitor.attached(True, path, None, None, None, None, None, None, session)
        return condition == UNAUTHORIZED

    return Attempt("receive a session", "Listen", path, is_refused)


def request(operation: str, right: str, path: str, body: Mapping[str, object]) -> Attempt:
    def is_refused(visitor: Visitor) -> bool:
        node = visitor.node(path)
        if node is None:
            return True
        status, condition, _ = node.manage(f"com.microsoft:{operation}", dict(body))
        assert (status == 401) == (condition == UNAUTHORIZED), (status, condition)
        return status == 401

    return Attempt(operation, right, path, is_refused)


TOKENS = Array(0x98, [uuid.UUID(int=1)])
NUMBERS = Array(0x81, [4711])
ONE_MESSAGE = [{"message-id": "m", "message": data_section(b"x")}]
RULE = {"rule-name": "r", "rule-description": {"sql-filter": {"expression": "no sql at all ("}}}

AMQP_ATTEMPTS: Sequence[Attempt] = (
    send("orders"),
    send("orders2"),
    send("orders/sub"),
    send("orders/messages"),
    receive("orders/sub"),
    receive("orders/sub/$deadletterqueue"),
    request("peek-message", "Listen", "orders/sub/$management", {"from-sequence-number": 1, "message-count": int_(1)}),
    send("news"),
    send_via("orders", "orders2"),
    send_via("orders", "orders"),
    send_via("news", "orders"),
    send_via(SUBSCRIPTION, "news"),
    send_via(SUBSCRIPTION, "orders"),
    receive("orders"),
    receive("orders/$deadletterqueue"),
    receive("orders/$transfer/$deadletterqueue"),
    receive(SUBSCRIPTION),
    receive(f"{SUBSCRIPTION}/$deadletterqueue"),
    receive_session("baskets"),
    request("peek-message", "Listen", "orders/$management", {"from-sequence-number": 1, "message-count": int_(1)}),
    request(
        "peek-message",
        "Listen",
        "orders/$deadletterqueue/$management",
        {"from-sequence-number": 1, "message-count": int_(1)},
    ),
    request("renew-lock", "Listen", "orders/$management", {"lock-tokens": TOKENS}),
    request(
        "receive-by-sequence-number",
        "Listen",
        "orders/$management",
        {"sequence-numbers": NUMBERS, "receiver-settle-mode": uint(1)},
    ),
    request(
        "update-disposition",
        "Listen",
        "orders/$management",
        {"disposition-status": "completed", "lock-tokens": TOKENS},
    ),
    request(
        "batch-delete-messages",
        "Listen",
        "orders/$management",
        {"message-count": int_(1), "enqueued-time-utc": timestamp(0)},
    ),
    request("schedule-message", "Send", "orders/$management", {"messages": ONE_MESSAGE}),
    request("cancel-scheduled-message", "Send", "orders/$management", {"sequence-numbers": NUMBERS}),
    request("schedule-message", "Send", "news/$management", {"messages": ONE_MESSAGE}),
    request("cancel-scheduled-message", "Send", "news/$management", {"sequence-numbers": NUMBERS}),
    request(
        "peek-message", "Listen", f"{SUBSCRIPTION}/$management", {"from-sequence-number": 1, "message-count": int_(1)}
    ),
    request("add-rule", "Manage", f"{SUBSCRIPTION}/$management", RULE),
    request("remove-rule", "Manage", f"{SUBSCRIPTION}/$management", {"rule-name": "nobody"}),
    request("enumerate-rules", "Manage", f"{SUBSCRIPTION}/$management", {"top": int_(1), "skip": int_(0)}),
    request("get-session-state", "Listen", "baskets/$management", {"session-id": "s"}),
    request("set-session-state", "Listen", "baskets/$management", {"session-id": "s", "session-state": None}),
    request("renew-session-lock", "Listen", "baskets/$management", {"session-id": "s"}),
    request(
        "get-message-sessions",
        "Listen",
        "baskets/$management",
        {"last-updated-time": timestamp(253402300800000), "skip": int_(0), "top": int_(1)},
    ),
)

# Over HTTP.


@dataclass(frozen=True)
class HttpAttempt:
    method: str
    path: str
    right: str
    target: str
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return f"{self.method} {self.path} ({self.right})"


NO_XML = b"<no description"
HTTP_ATTEMPTS: Sequence[HttpAttempt] = (
    HttpAttempt("GET", "/$namespaceinfo", "Manage", "the namespace"),
    HttpAttempt("GET", "/$Resources/queues", "Manage", "the namespace"),
    HttpAttempt("GET", "/$Resources/topics", "Manage", "the namespace"),
    HttpAttempt("GET", "/tandembus/meter", "Manage", "the namespace"),
    HttpAttempt("GET", "/$topology", "Manage", "the namespace"),
    HttpAttempt("GET", "/$policies", "Manage", "the namespace"),
    HttpAttempt("PUT", "/$policies/new", "Manage", "the namespace", b"no json"),
    HttpAttempt("POST", "/$policies/nobody/regenerate", "Manage", "the namespace", b"{}"),
    HttpAttempt("DELETE", "/$policies/nobody", "Manage", "the namespace"),
    HttpAttempt("GET", "/orders", "Manage", "orders"),
    HttpAttempt("PUT", "/orders", "Manage", "orders", NO_XML),
    HttpAttempt("PUT", "/orders", "Manage", "orders", NO_XML, (("If-Match", "*"),)),
    HttpAttempt("PUT", "/orders2", "Manage", "orders2", NO_XML),
    HttpAttempt("GET", "/orders/$policies", "Manage", "orders"),
    HttpAttempt("GET", "/orders/sub", "Manage", "orders/sub"),
    HttpAttempt("PUT", "/orders/sub", "Manage", "orders/sub", NO_XML),
    HttpAttempt("GET", "/orders/sub/$policies", "Manage", "orders/sub"),
    HttpAttempt("POST", "/orders/sub/messages", "Send", "orders/sub", b"hello"),
    HttpAttempt("DELETE", "/orders/sub/messages/head?timeout=0", "Listen", "orders/sub"),
    HttpAttempt("POST", "/orders/messages/messages", "Send", "orders/messages", b"hello"),
    HttpAttempt("DELETE", "/orders/$policies/nobody", "Manage", "orders"),
    HttpAttempt("GET", "/news", "Manage", "news"),
    HttpAttempt("PUT", "/news", "Manage", "news", NO_XML),
    HttpAttempt("GET", "/news/subscriptions", "Manage", "news"),
    HttpAttempt("GET", f"/{SUBSCRIPTION}", "Manage", SUBSCRIPTION),
    HttpAttempt("PUT", f"/{SUBSCRIPTION}", "Manage", SUBSCRIPTION, NO_XML),
    HttpAttempt("GET", f"/{SUBSCRIPTION}/rules", "Manage", SUBSCRIPTION),
    HttpAttempt("PUT", f"/{SUBSCRIPTION}/rules/new", "Manage", SUBSCRIPTION, NO_XML),
    HttpAttempt("DELETE", f"/{SUBSCRIPTION}/rules/nobody", "Manage", SUBSCRIPTION),
    HttpAttempt("POST", "/orders/messages", "Send", "orders", b"hello"),
    HttpAttempt("POST", "/orders2/messages", "Send", "orders2", b"hello"),
    HttpAttempt("POST", "/news/messages", "Send", "news", b"hello"),
    HttpAttempt("POST", "/orders/messages/head?timeout=0", "Listen", "orders"),
    HttpAttempt("DELETE", "/orders/messages/head?timeout=0", "Listen", "orders"),
    HttpAttempt("DELETE", "/orders/$deadletterqueue/messages/head?timeout=0", "Listen", "orders/$deadletterqueue"),
    HttpAttempt("DELETE", f"/{SUBSCRIPTION}/messages/head?timeout=0", "Listen", SUBSCRIPTION),
    HttpAttempt("DELETE", f"/orders/messages/1/{uuid.UUID(int=1)}", "Listen", "orders"),
    HttpAttempt("PUT", f"/orders/messages/1/{uuid.UUID(int=1)}", "Listen", "orders"),
    HttpAttempt("POST", f"/{SUBSCRIPTION}/messages/1/{uuid.UUID(int=1)}", "Listen", SUBSCRIPTION),
    HttpAttempt("DELETE", "/orders/messages/4711", "Listen", "orders"),
    HttpAttempt("POST", "/orders/$purge", "Listen", "orders"),
)
