"""F2 for cross-entity transactions: a message is received from one entity, two are sent to others, and the process is
killed at each step in between, and at any moment of many at the same time: all of it or nothing, every time."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tandembus.amqp.encoding import descriptors as codes
from tandembus.clock import SystemClock
from tests.chaos.test_kill9_transactions import ENDS_WITHIN_S, token_of
from tests.covers import covers
from tests.integration.bus import Bus, Counts
from tests.integration.raw_amqp import RawAmqp
from tests.integration.serving import RunningNamespace, start_namespace
from tests.integration.shapes import EVERY, PARTITIONED, PLAIN, Shape
from tests.scale import scaled
from tests.sdk.dotnet_frames import DotNetClient, message, schedule

STEPS = ("declared", "received", "scheduled", "sent", "sent twice", "completed", "discharging", "discharged")
HOUR_MS = 3_600_000
TOKENS = 20
WORKERS_OF_EACH = 2


def by_name(shape: Shape) -> str:
    return shape.name


def take(client: DotNetClient, here: str, there: str, also: str, key: str | None, numbers: list[int]) -> Iterator[str]:
    """One transaction, step by step. `numbers`: of what is scheduled."""
    client.coordinate()
    txn_id = client.declare()
    yield "declared"
    client.receiver(here)
    delivery_id = client.receive()
    yield "received"
    due_ms = SystemClock().now_ms() + HOUR_MS
    status, scheduled = schedule(client, client.node(here), txn_id, message("later", key, due_ms=due_ms))
    assert status == 200
    numbers += scheduled
    yield "scheduled"
    to_there, to_also = client.sender(there), client.sender(also)
    client.send_in(to_there, message("bill"), txn_id)
    yield "sent"
    client.send_in(to_also, message("news"), txn_id)
    yield "sent twice"
    client.complete_in(txn_id, delivery_id)
    yield "completed"
    client.begin_discharge(txn_id)
    yield "discharging"
    assert client.raw.expect(codes.DISPOSITION).described(4)[0] == codes.ACCEPTED
    yield "discharged"


@pytest.mark.chaos
@covers("M11", "P16", "P17", "F2")
@pytest.mark.parametrize("layout", EVERY, ids=by_name)
def test_a_kill_at_any_step_leaves_all_of_it_or_nothing(tmp_path: Path, layout: Shape) -> None:
    namespace = start_namespace(tmp_path / "data", *layout.topology.options)
    bus = Bus(namespace, shape=layout)
    here, there, also = (bus.make_queue() for _ in range(3))
    fill(namespace, here, [message(str(number), layout.key) for number in range(len(STEPS))])
    numbers: list[int] = []
    taken = 0
    for step in STEPS:
        with DotNetClient(namespace.port) as client:
            for reached in take(client, here, there, also, layout.key, numbers):
                if reached == step:
                    break
            namespace.kill()
        bus.close()
        namespace = start_namespace(tmp_path / "data", *layout.topology.options)
        bus = Bus(namespace, shape=layout)
        left, scheduled, _ = bus.counts(here)
        is_done = len(STEPS) - taken - left == 1
        assert is_done or len(STEPS) - taken == left
        assert is_done == (step == "discharged") or step == "discharging"
        taken += is_done
        assert scheduled == taken
        assert numbers == sorted(set(numbers))
        assert bus.comes_to(there, Counts(taken))
        assert bus.comes_to(also, Counts(taken))
    assert 1 <= taken <= 2
    bus.close()
    namespace.stop_in_peace()


def fill(namespace: RunningNamespace, queue: str, payloads: list[bytes]) -> None:
    with RawAmqp(namespace.port) as raw:
        raw.log_in()
        raw.attach_sender(1, queue)
        for number, payload in enumerate(payloads):
            assert raw.send_message(1, number, payload).described(4)[0] == codes.ACCEPTED


class PassingToEachOther:
    """Workers that receive a token from one queue and send it to the other, until the connection is lost."""

    def __init__(self, port: int, queues: tuple[str, str], enough: int) -> None:
        self.committed_count = 0
        self.is_enough = threading.Event()
        self._port = port
        self._enough = enough
        self._lock = threading.Lock()
        self._failure: BaseException | None = None
        ways = [queues, queues[::-1]] * WORKERS_OF_EACH
        self._threads = [threading.Thread(target=self._work, args=way) for way in ways]
        for thread in self._threads:
            thread.start()

    def _work(self, here: str, there: str) -> None:
        try:
            with DotNetClient(self._port) as client:
                self._pass_on(client, here, there)
        except (ConnectionError, TimeoutError):
            return
        except BaseException as error:
            self._failure = error
            self.is_enough.set()

    def _pass_on(self, client: DotNetClient, here: str, there: str) -> None:
        client.coordinate()
        receiver = client.receiver(here, credit=0)
        sender = client.sender(there)
        received = 0
        while True:
            client.raw.flow(receiver, 1, delivery_count=received)
            frame, token = client.raw.receive_message()
            assert isinstance(token.body, bytes)
            txn_id = client.declare()
            client.send_in(sender, token_of(int(token.body) + 1), txn_id)
            client.complete_in(txn_id, frame.number(1))
            client.commit(txn_id)
            client.raw.expect(codes.DISPOSITION)
            received += 1
            with self._lock:
                self.committed_count += 1
                if self.committed_count >= self._enough:
                    self.is_enough.set()

    def join(self) -> None:
        for thread in self._threads:
            thread.join(ENDS_WITHIN_S)
            assert not thread.is_alive()
        if self._failure is not None:
            raise self._failure


@pytest.mark.chaos
@covers("M11", "P16", "P17", "M1", "F2")
@pytest.mark.parametrize("layout", [PLAIN, PARTITIONED], ids=by_name)
def test_tokens_passed_to_and_fro_are_never_lost_and_never_doubled(tmp_path: Path, layout: Shape) -> None:
    moments = random.Random(7)
    queues, committed = ("", ""), 0
    rounds = scaled(3, 50, 500)
    for _ in range(rounds):
        namespace = start_namespace(tmp_path / "data", *layout.topology.options)
        if not queues[0]:
            bus = Bus(namespace, shape=layout)
            queues = (bus.make_queue(max_delivery_count=2000), bus.make_queue(max_delivery_count=2000))
            bus.close()
            fill(namespace, queues[0], [token_of(0)] * TOKENS)
        passing = PassingToEachOther(namespace.port, queues, moments.randint(1, 150))
        assert passing.is_enough.wait(ENDS_WITHIN_S)
        namespace.kill()
        passing.join()
        committed += passing.committed_count
    namespace = start_namespace(tmp_path / "data", *layout.topology.options)
    total = sum(generations(namespace, queues))
    assert committed <= total <= committed + rounds * 2 * WORKERS_OF_EACH
    namespace.stop_in_peace()


def generations(namespace: RunningNamespace, queues: tuple[str, str]) -> list[int]:
    """Of every token that is there; with none too few, and then none too many."""
    found: list[int] = []
    with RawAmqp(namespace.port) as raw:
        raw.log_in()
        for handle, queue in enumerate(queues):
            raw.attach_receiver(handle, queue)
        for handle in range(len(queues)):
            raw.flow(handle, 2 * TOKENS)
        for _ in range(TOKENS):
            _, token = raw.receive_message()
            assert isinstance(token.body, bytes)
            found.append(int(token.body))
    bus = Bus(namespace)
    assert sum(bus.counts(queue).active for queue in queues) == TOKENS
    bus.close()
    return found
