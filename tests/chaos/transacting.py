"""A client that does everything in transactions, in a thread of its own, and writes down what came of them."""

from __future__ import annotations

import random
import threading
from types import TracebackType

from tandembus.amqp.encoding import descriptors as codes
from tandembus.amqp.encoding.sections import data_section, message_annotations_section, properties_section
from tandembus.amqp.encoding.values import Described
from tandembus.client import OutgoingMessage
from tests.chaos.recorder import Recorder
from tests.chaos.targets import Target, any_key
from tests.integration.raw_amqp import SENDER, RawAmqp, plain
from tests.integration.raw_transactions import Transacting

ENDS_WITHIN_S = 60.0
IN_ONE = 3
REST_S = 0.005
ROLLED_BACK = "amqp:transaction:rollback"


class TransactingSender:
    """Sends a few messages with one key in each transaction, commits most and rolls the others back; what is received
    is the load's business. Use it with `with`."""

    def __init__(self, port: int, recorder: Recorder, target: Target) -> None:
        self._port = port
        self._recorder = recorder
        self._target = target
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="transacting", daemon=True)

    def __enter__(self) -> TransactingSender:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join(ENDS_WITHIN_S)
        if error is None:
            assert not self._thread.is_alive(), "a transaction does not end"
            if self._failure is not None:
                raise self._failure

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    with RawAmqp(self._port) as raw:
                        raw.log_in()
                        self._work(raw)
                except (ConnectionError, TimeoutError):
                    self._stopping.wait(REST_S)
        except BaseException as error:
            self._failure = error

    def _work(self, raw: RawAmqp) -> None:
        transacting = Transacting(raw)
        raw.attach_sender(SENDER, self._target.name)
        chance = random.Random(f"{self._recorder.seed} transactions {self._recorder.number()}")
        while not self._stopping.is_set():
            self._transact(transacting, chance)
            self._stopping.wait(REST_S)

    def _transact(self, transacting: Transacting, chance: random.Random) -> None:
        number, key = self._recorder.number(), any_key(chance, self._target.keys)
        txn_id = transacting.declare()
        sent = [self._send(transacting, txn_id, number, key, chance) for _ in range(IN_ONE)]
        is_commit = all(sent) and chance.randrange(5) > 0
        operation = self._recorder.number()
        self._recorder.say("commit" if is_commit else "rollback", op=operation, transaction=number)
        code, fields = transacting.discharge(txn_id, fail=not is_commit).described(4)
        if code == codes.ACCEPTED:
            self._recorder.say("ok", op=operation)
        else:
            condition = _condition(fields)
            outcome = "failed" if condition == ROLLED_BACK else "unknown"
            self._recorder.say(outcome, op=operation, error=condition)

    def _send(self, transacting: Transacting, txn_id: bytes, number: int, key: str, chance: random.Random) -> bool:
        message = OutgoingMessage(chance.randbytes(100), f"in-{number}-{self._recorder.number()}", partition_key=key)
        operation = self._recorder.sending(self._target.name, message, key, transaction=number)
        code, _ = transacting.transfer(SENDER, _payload(message), txn_id).described(4)
        is_taken = code == codes.TRANSACTIONAL_STATE
        self._recorder.say("ok" if is_taken else "failed", op=operation, error="" if is_taken else f"{code:#x}")
        return is_taken


def _condition(fields: list[object]) -> str:
    error = fields[0]
    assert isinstance(error, Described)
    assert isinstance(error.value, list)
    return str(plain(error.value[0]))


def _payload(message: OutgoingMessage) -> bytes:
    assert isinstance(message.body, bytes)
    annotations = message_annotations_section({"x-opt-partition-key": message.partition_key})
    return annotations + properties_section(message.message_id) + data_section(message.body)
