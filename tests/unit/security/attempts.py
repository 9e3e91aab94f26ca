"""Tricks by which a stranger, or somebody with a smaller right, may try to get in. None of them may work."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, quote_plus

import pytest

from tandembus.security.claims import Right
from tandembus.security.sas import ROOT_POLICY
from tests.unit.security.signing import (
    CLERK_KEY,
    HOST,
    KEYS,
    LATER,
    LISTENER_KEY,
    NOW,
    ORDERS_KEY,
    ROOT_KEY,
    SECOND_KEY,
    SENDER_KEY,
    signature,
    token,
)

SEND, LISTEN, MANAGE = Right.SEND, Right.LISTEN, Right.MANAGE
Attempt = tuple[str, Right, str, str | None]
RESOURCE = quote_plus(f"{HOST}/orders")
GOOD_SIGNATURE = signature(f"{RESOURCE}\n{LATER}", ROOT_KEY)


def attempt(name: str, text: str, right: Right = SEND, path: str = "orders", audience: str | None = None) -> Any:
    return pytest.param((text, right, path, audience), id=name)


def expired() -> Iterator[Any]:
    for seconds in (0, 1, 59, 3_600, 86_400, 31_536_000, 1_000_000_000, 1_700_000_000):
        for policy, right in (("sender", SEND), ("listener", LISTEN), (ROOT_POLICY, MANAGE)):
            expires = str(int(NOW) - seconds)
            yield attempt(f"expired-{seconds}s-ago-{policy}", token(policy=policy, se=expires), right)


def expiry_that_is_none() -> Iterator[Any]:
    odd = [
        "",
        "-1",
        "+1800000000",
        "1e12",
        "0x7fffffff",
        "1700003600.5",
        "NaN",
        "inf",
        "never",
        "\uff11\uff17" + "\uff10" * 8,
        "\u00b2",
    ]
    odd += ["1700003600 ", " 1700003600", "1_700_003_600", "1700003600000", "9" * 18, "9" * 19, "9" * 400]
    odd += [
        "1700003600,0",
        "17000036OO",
        "2033-05-18",
        "%31%37",
        str(int(NOW) + 3_651 * 86_400),
        "\u0661\u0667" + "\u0660" * 8,
    ]
    for number, se in enumerate(odd):
        yield attempt(f"odd-expiry-{number}", token(se=se))


def wrong_keys() -> Iterator[Any]:
    decoded = base64.b64decode(ROOT_KEY).decode("latin-1")
    wrong = [
        "",
        " ",
        "=",
        ROOT_KEY[:-1],
        ROOT_KEY + "=",
        ROOT_KEY + "\n",
        ROOT_KEY.lower(),
        ROOT_KEY.upper(),
        decoded,
    ]
    wrong += [
        SENDER_KEY,
        LISTENER_KEY,
        SECOND_KEY,
        CLERK_KEY,
        ORDERS_KEY,
        ROOT_KEY.swapcase(),
        ROOT_KEY[::-1],
    ]
    wrong += [
        "SAS_KEY_VALUE",
        "None",
        "null",
        "RootManageSharedAccessKey",
        "-",
        "?",
        ROOT_KEY * 2,
        f'"{ROOT_KEY}"',
    ]
    for number, key in enumerate(wrong):
        yield attempt(f"wrong-key-{number}", token(key=key))


def wrong_policies() -> Iterator[Any]:
    for policy in (
        "",
        "nobody",
        "rootmanagesharedaccesskey",
        "ROOTMANAGESHAREDACCESSKEY",
        "root",
        "*",
        "None",
    ):
        yield attempt(f"policy-{policy or 'empty'}-signed-with-the-root-key", token(policy=policy, key=ROOT_KEY))
    for policy in (
        "RootManageSharedAccessKey%20",
        "%20RootManageSharedAccessKey",
        "RootManageSharedAccessKey%00",
    ):
        yield attempt(f"policy-{policy}", token(policy=policy, key=ROOT_KEY))
    for policy in KEYS:
        for other in KEYS:
            if policy != other:
                yield attempt(f"{policy}-with-the-key-of-{other}", token(policy=policy, key=KEYS[other]))


def wrong_signatures() -> Iterator[Any]:
    raw = base64.b64decode(GOOD_SIGNATURE)
    for position in range(0, 32, 2):
        flipped = bytes([*raw[:position], raw[position] ^ 1, *raw[position + 1 :]])
        yield attempt(f"bit-flipped-in-byte-{position}", token(sig=base64.b64encode(flipped).decode()))
    text = f"{RESOURCE}\n{LATER}".encode()
    key = ROOT_KEY.encode()
    others = {
        "empty": "",
        "cut": GOOD_SIGNATURE[:-2],
        "without-padding": GOOD_SIGNATURE.rstrip("="),
        "more-padding": GOOD_SIGNATURE + "=",
        "with-a-line-feed": GOOD_SIGNATURE + "\n",
        "lower-case": GOOD_SIGNATURE.lower(),
        "doubled": GOOD_SIGNATURE * 2,
        "hexadecimal": raw.hex(),
        "raw": raw.decode("latin-1"),
        "first-half": base64.b64encode(raw[:16]).decode(),
        "one-byte": base64.b64encode(raw[:1]).decode(),
        "zeros": base64.b64encode(bytes(32)).decode(),
        "plain-hash": base64.b64encode(hashlib.sha256(text + key).digest()).decode(),
        "plain-hash-key-first": base64.b64encode(hashlib.sha256(key + text).digest()).decode(),
        "sha1": base64.b64encode(hmac.new(key, text, hashlib.sha1).digest()).decode(),
        "sha512": base64.b64encode(hmac.new(key, text, hashlib.sha512).digest()).decode(),
        "key-decoded": base64.b64encode(hmac.new(base64.b64decode(key), text, hashlib.sha256).digest()).decode(),
        "of-the-decoded-resource": signature(f"{HOST}/orders\n{LATER}", ROOT_KEY),
        "of-another-resource": signature(f"{quote_plus(HOST + '/invoices')}\n{LATER}", ROOT_KEY),
        "of-another-expiry": signature(f"{RESOURCE}\n{LATER - 1}", ROOT_KEY),
        "of-lower-cased-escapes": signature(f"{RESOURCE.lower()}\n{LATER}", ROOT_KEY),
        "without-the-line-feed": signature(f"{RESOURCE}{LATER}", ROOT_KEY),
        "with-carriage-return": signature(f"{RESOURCE}\r\n{LATER}", ROOT_KEY),
        "of-nothing": signature("", ROOT_KEY),
        "the-key-itself": ROOT_KEY,
        "non-ascii": "é" * 44,
        "lone-surrogates": "%ED%A0%80" * 4,
        "trailing-bits-changed": GOOD_SIGNATURE[:-2] + chr(ord(GOOD_SIGNATURE[-2]) + 1) + "=",
    }
    for name, wrong in others.items():
        yield attempt(f"signature-{name}", token(sig=wrong))


OUTSIDE_OF_ORDERS = (
    "order",
    "orders2",
    "orders-2",
    "orders.2",
    "orders_",
    "orders~",
    "ordersorders",
    "ORDERSX",
    "Orders2",
    "orders2/$management",
    "orders2/$DeadLetterQueue",
    "orders-eu/orders",
    "x/orders",
    "x/orders/$management",
    "invoices",
    "invoices/orders",
    "$management",
    "$cbs",
    "$deadletterqueue",
    "$resources/queues",
    "$namespaceinfo",
    "",
    "/",
    "//",
    "orders/../invoices",
    "orders/..",
    "../orders",
    "./orders",
    "orders/.",
    "orders/./x",
    "orders\\..\\invoices",
    "orders%2f..%2finvoices",
    "orders%2finvoices",
    "%6frders",
    "orders%20",
    "orders%00",
    "orders ",
    " orders",
    "orders\x00",
    "orders\n",
    "orders\t",
    "orders?x",
    "orders#x",
    "orders;x",
    "orders,invoices",
    "order\u0455",
    "order\u017f",
    "\uff4frders",
    "orders\u200b",
    "o\u0308rders",
    "orders\u2215x",
    "orders:5672",
    "orders\\x",
)


def outside_the_scope() -> Iterator[Any]:
    for number, path in enumerate(OUTSIDE_OF_ORDERS):
        yield attempt(f"scope-orders-reaches-{number}-{path.encode('unicode_escape').decode()}", token(), MANAGE, path)
    for path in ("orders2", "invoices", "", "$management", "orders-2/$management"):
        yield attempt(
            f"audience-orders-then-{path or 'everything'}",
            token(policy="clerk"),
            SEND,
            path,
            audience="orders",
        )
        yield attempt(
            f"namespace-token-for-audience-orders-then-{path or 'everything'}",
            token(path=""),
            SEND,
            path,
            audience="sb://localhost:5672/orders",
        )


NARROW = {
    "orders/$deadletterqueue": (
        "orders",
        "orders/$management",
        "orders/$transfer/$deadletterqueue",
        "orders/x",
    ),
    "orders/$management": ("orders", "orders/$deadletterqueue", "orders/$deadletterqueue/$management"),
    "orders/$transfer/$deadletterqueue": ("orders", "orders/$deadletterqueue", "orders/$transfer"),
    "news/subscriptions/a": (
        "news",
        "news/subscriptions",
        "news/subscriptions/b",
        "news/subscriptions/ab",
        "news/subscriptions/a2/rules/r",
    ),
    "a": ("ab", "a.b", "a-b", "b/a", "aa/a"),
    "a/b": ("a", "a/bc", "a/c", "ab", "b"),
    "orders/eu": ("orders", "orders/us", "orders/eu2", "orders/$management"),
}


def above_the_scope() -> Iterator[Any]:
    for scope, paths in NARROW.items():
        for path in paths:
            yield attempt(f"scope-{scope}-reaches-{path}", token(path=scope), LISTEN, path)


def missing_rights() -> Iterator[Any]:
    lacking = {"sender": (LISTEN, MANAGE), "listener": (SEND, MANAGE), "clerk": (MANAGE,)}
    for policy, rights in lacking.items():
        for right in rights:
            for scope in ("", "orders"):
                for path in (
                    "orders",
                    "orders/$management",
                    "Orders/$DeadLetterQueue",
                    "orders/subscriptions/s",
                ):
                    yield attempt(
                        f"{policy}-of-{scope or 'all'}-does-{right.value}-on-{path}",
                        token(scope, policy),
                        right,
                        path,
                    )


def policy_of_another_entity() -> Iterator[Any]:
    for path in ("", "invoices", "orders2", "order", "x/orders", "$management", "$resources/queues"):
        for right in (SEND, MANAGE):
            text = token(path, "orders-only")
            yield attempt(f"policy-of-orders-for-{path or 'everything'}-{right.value}", text, right, path)
    for path in (
        "orders/eu",
        "orders/x-servicebus-transfer/0",
        "orders/eu/$management",
        "orders/messages",
        "orders/a/$b",
    ):
        for scope in ("orders", path):
            for audience in ("orders", path):
                text = token(scope, "orders-only")
                yield attempt(f"policy-of-orders-{scope}-shown-for-{audience}-for-{path}", text, SEND, path, audience)


def odd_resources() -> Iterator[Any]:
    """Resources that a careless reader takes for the whole namespace."""
    odd = [
        "",
        "/",
        "//",
        "sb://",
        "sb:///",
        "sb:///orders",
        "sb://host\\orders",
        "sb://host orders",
        "sb:orders",
        "orders",
    ]
    odd += [
        "sb://user@host/",
        "sb://user:secret@host/",
        "sb://host%2Forders",
        "sb://host%5Corders",
        "ftp://host/",
        "*",
    ]
    odd += [
        "file:///",
        "javascript://host/",
        "sb//host/",
        "sb://host:99999999/",
        "sb://host:port/",
        "sb://[::1",
        "?",
    ]
    odd += [
        "orders?sb://host/",
        "\\\\host\\",
        "sb%3A%2F%2Fhost%2F",
        "sb://höst/",
        "sb://\x00/",
        "localhost",
        "#",
    ]
    for number, uri in enumerate(odd):
        yield attempt(f"resource-{number}-{uri.encode('unicode_escape').decode()}", token(uri=uri), MANAGE, "invoices")


def malformed_texts() -> Iterator[Any]:
    good = token()
    fields = good.removeprefix("SharedAccessSignature ").split("&")
    for number in range(4):
        rest = "&".join(fields[:number] + fields[number + 1 :])
        yield attempt(f"without-{fields[number][:3]}", f"SharedAccessSignature {rest}")
        name = fields[number].split("=")[0]
        emptied = [*fields[:number], f"{name}=", *fields[number + 1 :]]
        yield attempt(f"with-empty-{name}", "SharedAccessSignature " + "&".join(emptied))
        yield attempt(f"{name}-twice", f"{good}&{fields[number]}")
        yield attempt(f"{name}-in-capitals", good.replace(f"{name}=", f"{name.upper()}="))
    other = quote_plus(f"{HOST}/invoices")
    yield attempt("second-resource-behind", f"{good}&sr={other}", SEND, "invoices")
    yield attempt("second-resource-in-front", good.replace(" sr=", f" sr={other}&sr="), SEND, "invoices")
    yield attempt("second-expiry", token(se=str(int(NOW) - 1)) + f"&se={LATER}")
    yield attempt("second-policy", token(policy="sender") + f"&skn={ROOT_POLICY}", MANAGE)
    texts = [
        "",
        " ",
        "SharedAccessSignature",
        "SharedAccessSignature ",
        "SharedAccessSignature &&&",
        "sr=&sig=&se=&skn=",
        good.removeprefix("SharedAccessSignature "),
        good.replace("SharedAccessSignature ", "SharedAccessSignature"),
        good.replace(" ", "\t", 1),
        good.replace("&", ";"),
        good.replace("&", "\n"),
        good.replace("=", ":"),
        good + "x" * 20_000,
        good + "&a=b" * 20,
        f"WRAP access_token={good}",
        f'"{good}"',
        good[::-1],
        "Basic " + base64.b64encode(f"{ROOT_POLICY}:{ROOT_KEY}".encode()).decode(),
        f"Bearer {ROOT_KEY}",
        ROOT_KEY,
        f"SharedAccessKeyName={ROOT_POLICY};SharedAccessKey={ROOT_KEY}",
        quote(good),
        "\x00" + good,
        "\ufeff" + good,
        good.replace("sr=", "sr=%00"),
        "SharedAccessSignature " * 3,
        "{}",
        "null",
        "\ud800",
        "a.b.c",
        "..",
    ]
    for number, text in enumerate(texts):
        yield attempt(f"text-{number}", text)


def web_tokens() -> Iterator[Any]:
    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    claims = {"aud": "https://servicebus.azure.net/", "exp": LATER, "sub": ROOT_POLICY, "roles": ["Manage"]}
    headers: list[object] = [
        {"alg": "none"},
        {"alg": "HS256"},
        {"alg": "RS256", "kid": "x"},
        {"alg": "None"},
        {},
        [],
    ]
    for number, header in enumerate(headers):
        for sig in ("", "c2ln", base64.urlsafe_b64encode(ROOT_KEY.encode()).decode()):
            text = f"{part(header)}.{part(claims)}.{sig}"
            yield attempt(f"web-token-{number}-{len(sig)}", text)
            yield attempt(f"bearer-web-token-{number}-{len(sig)}", f"Bearer {text}")


ATTEMPTS = [
    one
    for group in (
        expired,
        expiry_that_is_none,
        wrong_keys,
        wrong_policies,
        wrong_signatures,
        outside_the_scope,
        above_the_scope,
        missing_rights,
        policy_of_another_entity,
        odd_resources,
        malformed_texts,
        web_tokens,
    )
    for one in group()
]
