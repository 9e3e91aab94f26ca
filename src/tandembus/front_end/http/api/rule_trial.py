"""A rule that is tried out: what is wrong with it, and what it would do with a message. Nothing is kept of it.

It is compiled and evaluated by what the broker itself uses, within the same bounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from tandembus.descriptions import Filter, RuleDescription, SqlAction, TrueFilter
from tandembus.errors import InvalidArgument
from tandembus.front_end.http.api.message_json import SHOWN_BODY_BYTES, message_json
from tandembus.front_end.http.api.places import sequence_number
from tandembus.front_end.http.api.sent_json import encode_document
from tandembus.front_end.http.values import parse_http_time
from tandembus.limits import Limits
from tandembus.message import MAX_TTL_MS, Message, parse_message
from tandembus.rules import ERROR, TRUE, MessageView, Rule, compile_rule, copy_with
from tandembus.rules.compiling import compile_unnamed
from tandembus.rules.tokens import SqlError
from tandembus.store.messaging_store import ACTIVE

Mistake: TypeAlias = dict[str, object]


class RuleTrial:
    def __init__(self, name: str, wanted: Filter, action: SqlAction | None, limits: Limits) -> None:
        """Each is compiled by itself, so that the mistakes of both are told."""
        self._filter_error = _mistake(RuleDescription(name, wanted), limits)
        self._action_error: Mistake | None = None
        if action is not None:
            self._action_error = _mistake(RuleDescription(name, TrueFilter(), action), limits)
        self._rule: Rule | None = None
        if self._filter_error is None and self._action_error is None:
            self._rule = compile_rule(RuleDescription(name, wanted, action))
        self._matches: bool | None = None
        self._evaluation_error: str | None = None
        self._after: Message | None = None
        self._number = 0

    def run(self, view: MessageView) -> None:
        """As the broker does when a message comes to the topic. A rule that does not compile is not run."""
        rule = self._rule
        if rule is None:
            return
        self._number = int(view.sequence_number)
        result = rule.matches(view)
        self._matches = result == TRUE
        if result == ERROR:
            self._evaluation_error = _why(view)
        elif result == TRUE and rule.has_action:
            self._apply(rule, view)

    def _apply(self, rule: Rule, view: MessageView) -> None:
        changed = rule.apply(view)
        if changed is None:
            self._evaluation_error = _why(view)
        else:
            self._after = copy_with(view.message, changed)

    def document(self) -> dict[str, object]:
        after = self._after
        return {
            "filter_error": self._filter_error,
            "action_error": self._action_error,
            "matches": self._matches,
            "evaluation_error": self._evaluation_error,
            "after": None if after is None else message_json(after, self._number, ACTIVE, SHOWN_BODY_BYTES),
        }


def _mistake(rule: RuleDescription, limits: Limits) -> Mistake | None:
    try:
        compile_unnamed(rule.validated(limits))
    except InvalidArgument as error:
        return {"text": str(error), "position": error.at if isinstance(error, SqlError) else None}
    return None


def _why(view: MessageView) -> str:
    return "it could not be evaluated" if view.fault is None else view.fault.reason


def view_of(document: Mapping[str, object], limits: Limits, now_ms: int) -> MessageView:
    """A message as the broker would see it, sent now unless it says when."""
    shown = {**document, "body": _whole_body(document.get("body"))}
    message = parse_message(encode_document(shown, now_ms), limits.max_key_length)
    sent = document.get("enqueued_at")
    sent_ms = parse_http_time(sent) if isinstance(sent, str) else None
    message.enqueued_at = now_ms if sent_ms is None else sent_ms
    if 0 < message.ttl_ms < MAX_TTL_MS:
        message.expires_at = message.enqueued_at + message.ttl_ms
    number = sequence_number(document.get("sequence_number") or "0", "sequence_number")
    return MessageView(message, number, message.enqueued_at)


def _whole_body(body: object) -> object:
    """Rules do not look at bodies: one that was cut when it was shown is left out."""
    if isinstance(body, dict) and body.get("encoded") is None:
        is_whole = not body.get("is_truncated") and body.get("kind", "data") == "data"
        return body if is_whole else None
    return body
