"""Under which name a primary has its backlog: the same for all who ask."""

from __future__ import annotations

import pytest

from tandembus.pairing.primary_name import chosen_name, disagreement, is_same_machine, name_in_host
from tests.covers import covers


@covers("N1", "N2")
@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("contoso.servicebus.windows.net", "contoso"),
        ("Contoso.servicebus.windows.net", "contoso"),
        ("broker:5672", "broker"),
        ("broker", "broker"),
        ("my-bus.example:5671", "my-bus"),
    ],
)
def test_the_host_tells_the_name(host: str, name: str) -> None:
    assert name_in_host(host) == name


@covers("N1")
@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:5672", "127.0.0.1", "10.0.0.7:5672", "[::1]", "[::1]:5672", "::1", "localhost.", "127.1"],
)
def test_some_hosts_tell_no_name(host: str) -> None:
    assert name_in_host(host) is None


@covers("N1", "N2")
@pytest.mark.parametrize(
    ("given", "own", "host", "name"),
    [
        ("given", "own", "label.example", "given"),
        (None, "own", "label.example", "own"),
        (None, "own", "10.0.0.5", "own"),
        (None, None, "label.example", "label"),
        (None, "not/a/name", "label.example", "label"),
        (None, None, "10.0.0.5", None),
    ],
)
def test_a_given_name_goes_before_its_own_and_that_before_its_hosts(
    given: str | None, own: str | None, host: str, name: str | None
) -> None:
    assert chosen_name(given, own, host) == name


@covers("N1")
@pytest.mark.parametrize("name", ["", "a/b", "../x", "-a", "a" * 101, "ü"])
def test_a_given_name_that_cannot_be_one_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be the name of a namespace"):
        chosen_name(name, "own", "label.example")


@covers("N2")
def test_clients_go_by_the_host_so_another_name_of_its_own_is_worth_a_warning() -> None:
    told = disagreement("contoso", "bus1.example:5672")
    assert told is not None
    assert "'contoso'" in told
    assert "--primary-name bus1" in told
    assert disagreement("Contoso", "contoso.servicebus.windows.net") is None
    assert disagreement("contoso", "127.0.0.1") is None
    assert disagreement(None, "bus1.example") is None


@covers("N1")
@pytest.mark.parametrize(
    ("host", "other", "is_same"),
    [
        ("localhost:5672", "localhost:5682", True),
        ("localhost", "127.0.0.1:5672", True),
        ("[::1]:5672", "LOCALHOST.", True),
        ("bus.example:5672", "bus.example:5682", True),
        ("contoso.servicebus.windows.net", "fabrikam.servicebus.windows.net", False),
        ("localhost", "10.0.0.1", False),
    ],
)
def test_two_hosts_may_be_one_machine(host: str, other: str, is_same: bool) -> None:
    assert is_same_machine(host, other) is is_same
