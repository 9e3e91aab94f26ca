"""Correlation filters: a few values that must all be equal. No parsing, no logic: the cheapest rules there are."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from tandembus.rules.message_view import MessageView
from tandembus.rules.predicates import Predicate
from tandembus.rules.values import EQUAL, FALSE, TRUE, Fault, compare


@final
class Correlation(Predicate):
    """System properties are text. Other values of another type are not equal, and never an error."""

    __slots__ = ("_indexes", "_names", "_texts", "_values")

    def __init__(self, system: list[tuple[int, str]], user: list[tuple[str, object]]) -> None:
        self._indexes: Final = [index for index, _ in system]
        self._texts: Final = [text for _, text in system]
        self._names: Final = [name.lower() for name, _ in user]
        self._values: Final = [value for _, value in user]

    def test(self, view: MessageView) -> i64:
        for number in range(len(self._indexes)):
            found = view.system(self._indexes[number])
            if not isinstance(found, str) or found != self._texts[number]:
                return FALSE
        for number in range(len(self._names)):
            if not equals(view.user(self._names[number]), self._values[number]):
                return FALSE
        return TRUE

    def can_fail(self) -> bool:
        return False


def equals(found: object, wanted: object) -> bool:
    """Numbers by value, whatever their types; everything else by type and value."""
    if isinstance(found, str):
        return isinstance(wanted, str) and found == wanted
    if found is None or isinstance(found, Fault):
        return False
    if isinstance(found, int) and isinstance(wanted, int):
        return isinstance(found, bool) == isinstance(wanted, bool) and found == wanted
    return compare(found, wanted, EQUAL) == TRUE
