"""Topic fan-out: one body, many subscriptions.

A message to a topic takes one number in the topic's main lane, and every subscription whose rules match gets that
number in its own: a bit, and an overlay where a rule's action changed application properties. A copy with other
system properties, or a second copy for the same subscription, is a message of its own. If nothing matches, no number
is used and nothing is stored.

Deciding (`distribute`) comes before writing (`give`), so that a batch is refused as a whole or given as a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from tandembus.broker.changes import note_opening
from tandembus.broker.lane import Lane
from tandembus.errors import InvalidOperation
from tandembus.message import Message, copy_of, parse_message, session_id_of
from tandembus.message_encoding import (
    application_properties_with,
    encode_changes,
    with_application_properties,
)
from tandembus.rules import ChangedMessage, MessageView, copy_with
from tandembus.store.audit_trail import COPIED, DEAD_LETTER
from tandembus.store.messaging_store import ACTIVE, MAIN, NEVER, Changes, Overlay, PutBody

if TYPE_CHECKING:
    from tandembus.broker.fragment import Fragment

MAX_EVALUATIONS: Final = 20_000
"""Rules evaluated for one commit: what comes behind waits for the next, so that a topic with thousands of rules holds
nobody up but its own senders."""

_SESSION_TAKEN: Final = "A rule's action removed the SessionId that the subscription requires."
_NO_SESSION: Final = "A message without a SessionId matches a subscription that requires sessions. Set its SessionId."


@final
class Distribution:
    """Which subscriptions get a message, and in which form."""

    __slots__ = ("changed", "errors", "plain")

    def __init__(self) -> None:
        self.plain: list[Fragment] = []
        self.changed: list[tuple[Fragment, ChangedMessage]] = []
        self.errors: list[tuple[Fragment, str]] = []

    def copies(self) -> i64:
        return len(self.plain) + len(self.changed) + len(self.errors)


@final
class _Given:
    """A number given out for the commit under way, so that it can be taken back."""

    __slots__ = ("lane", "number", "size_bytes")

    def __init__(self, lane: Lane, number: i64, size_bytes: i64) -> None:
        self.lane: Final = lane
        self.number: i64 = number
        self.size_bytes: i64 = size_bytes


@final
class FanOut:
    """The subscriptions of one topic, and what the commit under way gives them."""

    def __init__(self, topic: Fragment) -> None:
        self.subscriptions: dict[int, Fragment] = {}
        self.evaluation_count: i64 = 0
        self._topic: Final = topic
        self._given: list[_Given] = []
        self._entering: list[tuple[Fragment, Message]] = []
        self._dead: list[tuple[Fragment, Message]] = []
        self._sends_from: i64 = 0
        self._entering_from: i64 = 0
        self._dead_from: i64 = 0

    def distribute(self, message: Message, now_ms: i64, is_sent: bool) -> Distribution:
        """Evaluate the rules of all subscriptions. Raises InvalidOperation for a sender's message that a subscription
        cannot take."""
        distribution = Distribution()
        view: MessageView | None = None
        for subscription in self.subscriptions.values():
            rules = subscription.rules
            if rules.is_always:
                distribution.plain.append(subscription)
                continue
            if view is None:
                number = self._topic.main.sequence_base | self._topic.main.next_number
                view = MessageView(message, number, now_ms)
            self.evaluation_count += len(rules.rules)
            self._evaluate(subscription, view, distribution)
        self._check_sessions(message, distribution, is_sent)
        return distribution

    def _evaluate(self, subscription: Fragment, view: MessageView, distribution: Distribution) -> None:
        matches = subscription.rules.evaluate(view)
        if matches.plain:
            distribution.plain.append(subscription)
        for changed in matches.changed:
            distribution.changed.append((subscription, changed))
        error = matches.error
        if error is not None and subscription.settings.dead_letter_filter_errors:
            distribution.errors.append((subscription, error))

    def _check_sessions(self, message: Message, distribution: Distribution, is_sent: bool) -> None:
        """A sender is told; what was scheduled or forwarded has nobody left to tell and becomes a dead letter."""
        if distribution.changed:
            self._check_sessions_left(distribution)
        if message.session_id is not None:
            return
        plain = [one for one in distribution.plain if not one.settings.requires_session]
        changed = [pair for pair in distribution.changed if not _lacks_session(pair[0], pair[1])]
        if len(plain) + len(changed) == len(distribution.plain) + len(distribution.changed):
            return
        if is_sent:
            raise InvalidOperation(_NO_SESSION)
        for subscription in distribution.plain:
            if subscription.settings.requires_session:
                distribution.errors.append((subscription, _NO_SESSION))
        for subscription, copy in distribution.changed:
            if _lacks_session(subscription, copy):
                distribution.errors.append((subscription, _NO_SESSION))
        distribution.plain = plain
        distribution.changed = changed

    def _check_sessions_left(self, distribution: Distribution) -> None:
        """A copy whose session an action took away is a dead letter: its sender did nothing wrong."""
        kept: list[tuple[Fragment, ChangedMessage]] = []
        for subscription, changed in distribution.changed:
            if subscription.settings.requires_session and changed.system.get("SessionId", "") is None:
                distribution.errors.append((subscription, _SESSION_TAKEN))
            else:
                kept.append((subscription, changed))
        distribution.changed = kept

    # Writing.

    def begin_sends(self) -> None:
        """What is given from here on may be taken back: the sends of this commit."""
        self._sends_from = len(self._given)
        self._entering_from = len(self._entering)
        self._dead_from = len(self._dead)

    def note(self, lane: Lane, message: Message) -> None:
        """A number was given out for a message, to be taken back should the send be refused."""
        self._given.append(_Given(lane, message.number, len(message.sections)))

    def give(
        self, message: Message, distribution: Distribution, now_ms: i64, expires_at: i64, changes: Changes
    ) -> None:
        """Number the message for the subscriptions that get it, and write it once for all of them."""
        message.enqueued_at = now_ms
        message.expires_at = expires_at
        sharing = self._sharing(distribution)
        if distribution.plain or sharing:
            self._store(message, changes)
            for subscription in distribution.plain:
                self._join(subscription, message, changes)
        # Those that share the message's number come first: a subscription gets its numbers in order.
        for subscription, changed in distribution.changed:
            if changed in sharing:
                self._join_changed(subscription, message, changed, changes)
        for subscription, changed in distribution.changed:
            if changed not in sharing:
                self._give_own(subscription, message, changed, changes)
        for subscription, error in distribution.errors:
            self._give_dead(subscription, message, error, changes)

    def _sharing(self, distribution: Distribution) -> list[ChangedMessage]:
        """The changed copies that an overlay over the shared body can express: at most one for each subscription."""
        if not distribution.changed:
            return []
        taken = [int(subscription.key) for subscription in distribution.plain]
        sharing: list[ChangedMessage] = []
        for subscription, changed in distribution.changed:
            if not changed.system and int(subscription.key) not in taken:
                taken.append(int(subscription.key))
                sharing.append(changed)
        return sharing

    def _store(self, message: Message, changes: Changes) -> None:
        lane = self._topic.main
        message.number = lane.give_number(len(message.sections), NEVER)
        if message.original_number == 0:
            message.original_number = lane.sequence_base | message.number
        if lane.column is not None:
            lane.column.add(message.number, session_id_of(message))
        self.note(lane, message)
        changes.bodies.append(PutBody(int(lane.fragment), MAIN, message))

    def _join(self, subscription: Fragment, message: Message, changes: Changes) -> None:
        expires_at = subscription.expiry_of(message)
        if expires_at != message.expires_at:
            message = _own(message)
            message.expires_at = expires_at
        lane = subscription.main
        lane.join(message.number, len(message.sections), expires_at)
        self.note(lane, message)
        self._entering.append((subscription, message))
        note_opening(lane, COPIED, message, changes)

    def _join_changed(
        self, subscription: Fragment, message: Message, changed: ChangedMessage, changes: Changes
    ) -> None:
        mine = _own(message)
        mine.application_properties = changed.application_properties
        self._join(subscription, mine, changes)
        if changed.application_properties:
            key, number = int(subscription.key), int(message.number)
            changes.overlays.append(Overlay(key, MAIN, number, ACTIVE, 0, changed.application_properties))

    def _give_own(self, subscription: Fragment, message: Message, changed: ChangedMessage, changes: Changes) -> None:
        mine = copy_with(message, changed)
        mine.original_number = 0
        self._store(mine, changes)
        self._join(subscription, mine, changes)

    def _give_dead(self, subscription: Fragment, message: Message, error: str, changes: Changes) -> None:
        added: dict[str, object] = {
            "DeadLetterReason": "FilterEvaluationException",
            "DeadLetterErrorDescription": error,
        }
        dead = with_application_properties(message, application_properties_with(message, encode_changes(added)))
        lane = subscription.dead_letter
        dead.enqueued_at = message.enqueued_at
        dead.expires_at = NEVER
        dead.number = lane.give_number(len(dead.sections), NEVER)
        dead.original_number = lane.sequence_base | dead.number
        self.note(lane, dead)
        self._dead.append((subscription, dead))
        changes.bodies.append(PutBody(int(lane.fragment), int(lane.code), dead))
        note_opening(lane, DEAD_LETTER, dead, changes)

    # The end of the commit.

    def touched(self) -> list[Fragment]:
        """The subscriptions that have a part in the commit."""
        keys: dict[int, Fragment] = {}
        for subscription, _ in self._entering:
            keys[int(subscription.key)] = subscription
        for subscription, _ in self._dead:
            keys[int(subscription.key)] = subscription
        return list(keys.values())

    def applied(self) -> None:
        for subscription, message in self._entering:
            subscription.enter(message)
        for subscription, dead in self._dead:
            settings = subscription.settings
            subscription.dead_letter.enter(dead, settings.window_messages, settings.window_bytes)
        self.forget()

    def take_back_sends(self, changes: Changes) -> None:
        """The store is full, and nobody has seen the numbers of the sends. Those of the topic are used up all the
        same: a subscription that got a later one has passed the earlier ones by."""
        lanes: list[Lane] = []
        for given in reversed(self._given[self._sends_from :]):
            if given.lane.code == MAIN:
                given.lane.use_up(given.number, given.size_bytes, changes)
            else:
                given.lane.take_back_number(given.number, given.size_bytes)
            if given.lane not in lanes:
                lanes.append(given.lane)
        del self._given[self._sends_from :]
        del self._entering[self._entering_from :]
        del self._dead[self._dead_from :]
        for lane in lanes:
            lane.emit_again(changes)

    def forget(self) -> None:
        self._given = []
        self._entering = []
        self._dead = []
        self.evaluation_count = 0
        self.begin_sends()


def _lacks_session(subscription: Fragment, copy: ChangedMessage) -> bool:
    """Of a message without a session: whether its copy needs one, and the action gave it none."""
    return subscription.settings.requires_session and "SessionId" not in copy.system


def _own(message: Message) -> Message:
    """The same content as an object of its own: others keep theirs in memory as it is."""
    mine = copy_of(message)
    mine.session_id = message.session_id
    mine.partition_key = message.partition_key
    return mine


def with_its_session(message: Message) -> Message:
    """A message read from the store, with what only its sections say."""
    message.session_id = parse_message(message.sections).session_id
    return message
