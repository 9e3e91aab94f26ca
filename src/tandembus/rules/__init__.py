"""Filters and actions of rules: parsed once, evaluated for every message of a topic.

`compile_rule` makes a `Rule` of its description. A `MessageView` reads the properties of one message for all rules of
all subscriptions; a `RuleSet` says which copies of the message a subscription gets. Deciding what becomes of them is
the broker's.
"""

from tandembus.rules.changed_message import ChangedMessage, copy_with
from tandembus.rules.compiling import compile_rule
from tandembus.rules.message_view import MessageView
from tandembus.rules.rule import Matches, Rule, RuleSet
from tandembus.rules.values import ERROR, FALSE, TRUE

__all__ = [
    "ERROR",
    "FALSE",
    "TRUE",
    "ChangedMessage",
    "Matches",
    "MessageView",
    "Rule",
    "RuleSet",
    "compile_rule",
    "copy_with",
]
