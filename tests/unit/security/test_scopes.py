"""What a scope covers, and what a resource URI means."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandembus.security.scopes import covers as scope_covers
from tandembus.security.scopes import fold, scope_of_uri, strip_host
from tests.covers import covers

SEGMENT = st.text(alphabet="abAB.-_~$", min_size=1, max_size=5).filter(lambda one: one not in (".", ".."))
PATH = st.lists(SEGMENT, min_size=1, max_size=4).map("/".join)


@covers("M15")
@given(PATH, PATH)
def test_a_scope_covers_itself_and_everything_below_it_in_whatever_letters(scope: str, below: str) -> None:
    assert scope_covers(fold(scope), scope.swapcase())
    assert scope_covers(fold(scope), f"/{scope.upper()}/{below}/")


@covers("M15", "F16")
@given(PATH, PATH)
def test_a_scope_covers_only_whole_segments(scope: str, other: str) -> None:
    mine, theirs = fold(scope).split("/"), fold(other).split("/")
    assert scope_covers(fold(scope), other) == (theirs[: len(mine)] == mine)


@covers("M15")
@given(PATH)
def test_the_empty_scope_covers_every_path(path: str) -> None:
    assert scope_covers("", path)
    assert scope_covers("", "")


@covers("F16")
@pytest.mark.parametrize("path", [".", "..", "a/..", "a/../b", "../a", "a/./b"])
def test_dot_segments_are_never_covered(path: str) -> None:
    assert not scope_covers("", path)
    assert not scope_covers("a", path)


@covers("M15")
@pytest.mark.parametrize(
    ("uri", "scope"),
    [
        ("sb://h/", ""),
        ("sb://h", ""),
        ("SB://H/Orders/", "orders"),
        ("amqps://h:5671/a/b", "a/b"),
        ("https://h:5300/a?api-version=1#x", "a"),
        ("https://[::1]:5300/a", "a"),
        ("https://h/t%2F1", "t/1"),
        ("https://h/t%252F1", "t%2f1"),
        ("contoso.servicebus.windows.net/a/", "a"),
        ("localhost:5672/a", "a"),
        ("orders", "orders"),
        ("sb://h/%ff", None),
        ("sb://h\\a", None),
        ("sb://", None),
        ("", None),
    ],
)
def test_a_resource_uri_names_a_scope(uri: str, scope: str | None) -> None:
    assert scope_of_uri(uri) == scope


@covers("F16")
@given(st.text(max_size=60))
def test_only_a_uri_with_a_host_can_mean_the_whole_namespace(uri: str) -> None:
    if scope_of_uri(uri) == "":
        assert "://" in uri or ":" in uri or ".servicebus.windows.net" in uri.lower()


def test_letters_that_only_look_alike_stay_different() -> None:
    assert fold("\u212aey") != fold("key")
    assert fold("KEY") == fold("key")


@pytest.mark.parametrize("address", ["q", "/q", "/q/", "amqps://h/q", "amqp://h:1/q", "sb://h/q/", "SB://h/q"])
def test_scheme_host_and_slashes_around_a_path_mean_nothing(address: str) -> None:
    assert strip_host(address) == "q"
