"""F2 for transactions: tokens are passed on, one settled for one sent, while the process is killed at any moment. Their
number never changes, whatever the last transaction's fate was."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from tandembus.amqp.encoding import descriptors as codes
from tandembus.amqp.encoding.sections import data_section, properties_section
from tests.covers import covers
from tests.integration.bus import Bus, Counts
from tests.integration.raw_amqp import RECEIVER, SENDER, RawAmqp, state_of
from tests.integration.raw_transactions import Transacting
from tests.integration.serving import RunningNamespace, start_namespace
from tests.scale import scaled

TOKENS = 30
WORKERS = 3
ENDS_WITHIN_S = 60.0


class Passing:
    """Workers that receive a token and send it on, one generation older, until the connection is lost."""

    def __init__(self, port: int, queue: str, enough: int) -> None:
        self.committed_count = 0
        self.is_enough = threading.Event()
        self._port = port
        self._queue = queue
        self._enough = enough
        self._lock = threading.Lock()
        self._failure: BaseException | None = None
        self._threads = [threading.Thread(target=self._work) for _ in range(WORKERS)]
        for thread in self._threads:
            thread.start()

    def _work(self) -> None:
        try:
            with RawAmqp(self._port) as raw:
                raw.log_in()
                self._pass_on(raw)
        except (ConnectionError, TimeoutError):
            return
        except BaseException as error:
            self._failure = error
            self.is_enough.set()

    def _pass_on(self, raw: RawAmqp) -> None:
        transacting = Transacting(raw)
        raw.attach_sender(SENDER, self._queue)
        raw.attach_receiver(RECEIVER, self._queue)
        received = 0
        while True:
            raw.flow(RECEIVER, 1, delivery_count=received)
            _, token = raw.receive_message()
            assert isinstance(token.body, bytes)
            txn_id = transacting.declare()
            raw.dispose(received, state_of(codes.TRANSACTIONAL_STATE, txn_id, state_of(codes.ACCEPTED)))
            raw.expect(codes.DISPOSITION)
            transacting.transfer(SENDER, token_of(int(token.body) + 1), txn_id)
            transacting.commit(txn_id)
            raw.expect(codes.DISPOSITION)
            received += 1
            self._count()

    def _count(self) -> None:
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


def token_of(generation: int) -> bytes:
    return properties_section(f"generation {generation}") + data_section(str(generation).encode())


def make_tokens(namespace: RunningNamespace) -> str:
    bus = Bus(namespace)
    queue = bus.make_queue(max_delivery_count=2000)
    bus.close()
    with RawAmqp(namespace.port) as raw:
        raw.log_in()
        raw.attach_sender(SENDER, queue)
        for number in range(TOKENS):
            assert raw.send_message(SENDER, number, token_of(0)).described(4)[0] == codes.ACCEPTED
    return queue


def generations(namespace: RunningNamespace, queue: str) -> list[int]:
    """Of every token that is there, all of them free again."""
    found: list[int] = []
    with RawAmqp(namespace.port) as raw:
        raw.log_in()
        raw.attach_receiver(RECEIVER, queue)
        raw.flow(RECEIVER, TOKENS)
        for _ in range(TOKENS):
            _, token = raw.receive_message()
            assert isinstance(token.body, bytes)
            found.append(int(token.body))
    return found


@pytest.mark.chaos
@covers("M11", "M1", "F2")
def test_tokens_passed_on_in_transactions_are_never_lost_and_never_doubled(tmp_path: Path) -> None:
    moments = random.Random(22)
    queue, committed = "", 0
    rounds = scaled(5, 100, 1000)
    for _ in range(rounds):
        namespace = start_namespace(tmp_path / "data")
        queue = queue or make_tokens(namespace)
        passing = Passing(namespace.port, queue, moments.randint(1, 200))
        assert passing.is_enough.wait(ENDS_WITHIN_S)
        namespace.kill()
        passing.join()
        committed += passing.committed_count
    namespace = start_namespace(tmp_path / "data")
    bus = Bus(namespace)
    assert bus.counts(queue) == Counts(TOKENS)
    bus.close()
    total = sum(generations(namespace, queue))
    assert committed <= total <= committed + rounds * WORKERS
    namespace.stop_in_peace()
