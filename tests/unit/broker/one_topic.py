"""One topic with subscriptions on a message broker over a memory store: each subscription is used like a queue."""

from __future__ import annotations

import copy
from collections.abc import Mapping

from tandembus.broker.auditing import AuditSink
from tandembus.broker.fragment import Fragment
from tandembus.broker.settings import FragmentSettings
from tandembus.broker.topics import add_subscription, drop_subscription, open_topic
from tandembus.clock import ManualClock
from tandembus.descriptions import DEFAULT_RULE_NAME, RuleDescription, SqlAction, SqlFilter, TrueFilter
from tandembus.message import Message
from tandembus.rules import Rule, RuleSet, compile_rule
from tandembus.store.memory import MemoryDisk
from tests.unit.broker.one_queue import KEY, OneQueue, small

Subscribed = Mapping[int, tuple[FragmentSettings, RuleSet]]


class OneTopic(OneQueue):
    """`fragment` is the topic's; `subscription(key)` is a view whose `fragment` is that subscription's."""

    def __init__(
        self,
        subscriptions: Subscribed,
        settings: FragmentSettings | None = None,
        disk: MemoryDisk | None = None,
        clock: ManualClock | None = None,
        index: int = 0,
        audit_sink: AuditSink | None = None,
    ) -> None:
        super().__init__(settings, disk, clock, index=index, audit_sink=audit_sink)
        self._subscriptions = dict(subscriptions)

    async def __aenter__(self) -> OneTopic:
        await self.broker.start()
        for key in (KEY, *self._subscriptions):
            if key not in self.disk.heads:
                await self.broker.make_fragment(key, 1, self.index)
        self.broker.open_by_key = self._open_by_key
        self.fragment = await self._open_topic()
        return self

    async def _open_topic(self) -> Fragment:
        parts = [(key, settings, rules) for key, (settings, rules) in self._subscriptions.items()]
        return await open_topic(self.broker, KEY, self.index, self.settings, parts)

    async def _open_by_key(self, key: int) -> Fragment | None:
        topic = await self._open_topic()
        assert topic.fan_out is not None
        return topic if key == KEY else topic.fan_out.subscriptions.get(key)

    def subscription(self, key: int) -> OneQueue:
        assert self.fragment.fan_out is not None
        view = copy.copy(self)
        view.fragment = self.fragment.fan_out.subscriptions[key]
        return view

    async def subscribe(self, key: int, rules: RuleSet, settings: FragmentSettings | None = None) -> OneQueue:
        settings = settings or small()
        self._subscriptions[key] = (settings, rules)
        await self.broker.make_fragment(key, 1, self.index)
        add_subscription(self.broker, self.fragment, key, settings, rules)
        return self.subscription(key)

    async def unsubscribe(self, key: int) -> None:
        del self._subscriptions[key]
        await drop_subscription(self.broker, self.fragment, key)

    async def after_crash(self) -> OneTopic:
        await super().after_crash()
        return OneTopic(self._subscriptions, self.settings, self.disk, self.clock, self.index, self.audit_sink)

    async def publish(self, *messages: Message) -> None:
        """One send for each message; all are accepted."""
        answers = [self.stage(message) for message in messages]
        await self.quiet()
        assert all(answer.is_accepted for answer in answers)

    def stored_bodies(self) -> int:
        return len(self.disk.bodies)


def rule_set(*expressions: str | None) -> RuleSet:
    """Rules given as filter, action, filter, action ...; a single filter needs no action."""
    pairs = list(zip(expressions[::2], [*expressions[1::2], None], strict=False))
    return RuleSet([_rule(f"rule{number}", sql or "", action) for number, (sql, action) in enumerate(pairs)])


def _rule(name: str, sql: str, action: str | None) -> Rule:
    return compile_rule(RuleDescription(name, SqlFilter(sql), SqlAction(action) if action is not None else None))


ALL = RuleSet([compile_rule(RuleDescription(DEFAULT_RULE_NAME, TrueFilter()))])
