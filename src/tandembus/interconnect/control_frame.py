"""What a front end tells a broker about its consumers and sessions, gathered for the next control frame."""

from __future__ import annotations

from typing import final

from librt.strings import BytesWriter
from mypy_extensions import i64

from tandembus.interconnect.fields import write_u8
from tandembus.interconnect.frames import CONTROL, GIVE_UP, LEAVE, REMOVE_CONSUMER, WISH, begin_frame, end_frame


@final
class ControlFrame:
    def __init__(self) -> None:
        self._control: BytesWriter = BytesWriter()
        self._farewells: BytesWriter = BytesWriter()
        """Who leaves, behind all else that the frame says; not before what they have settled was carried there."""
        self._frees_session: bool = False
        """One of those who leave holds a session, which others may wish for."""

    def begin(self, kind: i64) -> BytesWriter:
        """Where it is to be written. A wish must not overtake the farewell of whoever has the session; nothing else has
        to wait for anybody who leaves."""
        is_farewell = kind == REMOVE_CONSUMER or kind == LEAVE
        if kind == LEAVE:
            self._frees_session = True
        out = self._control
        if is_farewell or (self._frees_session and (kind == WISH or kind == GIVE_UP)):
            out = self._farewells
        write_u8(out, kind)
        return out

    def write(self, out: BytesWriter, epoch: i64, has_unsettled: bool) -> None:
        """`has_unsettled`: settlements are still to be carried, and farewells wait for them."""
        if len(self._farewells) > 0 and not has_unsettled:
            self._control.write(self._farewells.getvalue())
            self._farewells = BytesWriter()
            self._frees_session = False
        if len(self._control) > 0:
            at = begin_frame(out, CONTROL, epoch)
            out.write(self._control.getvalue())
            end_frame(out, at)
            self._control = BytesWriter()

    def clear(self) -> None:
        self._control = BytesWriter()
        self._farewells = BytesWriter()
        self._frees_session = False
