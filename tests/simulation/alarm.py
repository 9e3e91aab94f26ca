"""The broker survives its own mistakes as it survives a failing store; here they are what is looked for."""

from __future__ import annotations

import logging

from tandembus.errors import BusError

LOG = logging.getLogger("tandembus.broker")


class Alarm(logging.Handler):
    """Collects what the broker logs and nobody would see: exceptions that are no refusal."""

    def __init__(self) -> None:
        super().__init__()
        self.violations: list[BaseException] = []
        LOG.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, BusError):
            self.violations.append(error)

    def ring(self) -> None:
        if self.violations:
            raise self.violations[0]

    def dispose(self) -> None:
        LOG.removeHandler(self)
