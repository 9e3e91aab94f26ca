"""A compiled rule, and all rules of one subscription."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from mypy_extensions import i64

from tandembus.descriptions.rules import RuleDescription, TrueFilter
from tandembus.rules.actions import Action
from tandembus.rules.changed_message import ChangedMessage
from tandembus.rules.message_view import MAX_STEPS, MessageView
from tandembus.rules.predicates import Predicate
from tandembus.rules.values import FALSE, TRUE, UNKNOWN


@final
class Rule:
    """A filter with an optional action; made by `compile_rule`. Nothing here raises, whatever the message holds."""

    __slots__ = ("_action", "_filter", "can_fail", "description", "has_action", "name")

    def __init__(self, description: RuleDescription, predicate: Predicate, action: Action | None) -> None:
        self.name: Final = description.name
        self.description: Final = description
        self.has_action: Final = action is not None
        self.can_fail: Final = predicate.can_fail() or action is not None
        self._filter: Final = predicate
        self._action: Final = action

    def matches(self, view: MessageView) -> i64:
        """TRUE, FALSE (also when it is unknown), or ERROR: then the view's `fault` says why."""
        view.steps_left = MAX_STEPS
        result = self._filter.test(view)
        return FALSE if result == UNKNOWN else result

    def apply(self, view: MessageView) -> ChangedMessage | None:
        """What the action makes of the message. None: it could not be carried out, the view's `fault` says why."""
        action = self._action
        if action is None:
            return ChangedMessage(b"", {})
        return action.apply(view)


@final
class Matches:
    """What the rules of a subscription say of a message: how many copies of it there are, and what went wrong."""

    __slots__ = ("changed", "error", "plain")

    def __init__(self, plain: bool, changed: list[ChangedMessage], error: str | None) -> None:
        self.plain: Final = plain
        self.changed: Final = changed
        self.error: Final = error

    @property
    def has_any(self) -> bool:
        return self.plain or len(self.changed) > 0


_NONE: Final = Matches(False, [], None)
_PLAIN: Final = Matches(True, [], None)


@final
class RuleSet:
    """The rules of one subscription, in no particular order."""

    __slots__ = ("_rules", "is_always", "rules")

    def __init__(self, rules: Sequence[Rule]) -> None:
        is_plain = not any(rule.can_fail for rule in rules)
        self.is_always: Final = is_plain and any(isinstance(rule.description.filter, TrueFilter) for rule in rules)
        """Every message matches, as it is, without looking at it."""
        # Those that cannot fail come first: once one of them has matched, the others like it need not be asked.
        self._rules: Final = [rule for rule in rules if not rule.can_fail] + [rule for rule in rules if rule.can_fail]
        self.rules: Final = tuple(rules)

    def evaluate(self, view: MessageView) -> Matches:
        """One copy for all matching rules without an action together, one for each matching rule with an action.

        A rule that fails does not match; the first one's reason is told. The answer must not be changed.
        """
        plain = False
        changed: list[ChangedMessage] | None = None
        error: str | None = None
        for rule in self._rules:
            if plain and not rule.can_fail:
                continue
            result = rule.matches(view)
            if result == TRUE and not rule.has_action:
                plain = True
            elif result != FALSE:
                copy = rule.apply(view) if result == TRUE else None
                if copy is None:
                    error = error or _explained(rule, view)
                elif changed is None:
                    changed = [copy]
                else:
                    changed.append(copy)
        if changed is None and error is None:
            return _PLAIN if plain else _NONE
        return Matches(plain, changed or [], error)


def _explained(rule: Rule, view: MessageView) -> str:
    fault = view.fault
    reason = "it could not be evaluated" if fault is None else fault.reason
    return f"Rule '{rule.name}': {reason}."
