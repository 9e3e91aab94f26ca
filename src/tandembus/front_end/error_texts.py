"""How error texts name entities: by a URI with the host that the client asked for, since clients compare it."""

from __future__ import annotations

import re
from typing import Final

from tandembus.errors import BusError

HOST: Final = re.compile(r"[A-Za-z0-9._-]{1,253}(:\d{1,5})?|\[[0-9A-Fa-f:.]{2,45}\](:\d{1,5})?", re.ASCII)
_NAMED: Final = re.compile(r"^The messaging entity '(sb://[^/']*/)?")


def error_text(error: BusError, host: str | None) -> str:
    """Unchanged where the client has named no host, or one that cannot be."""
    text = str(error)
    if host is None or HOST.fullmatch(host) is None:
        return text
    return _NAMED.sub(f"The messaging entity 'sb://{host}/", text)
