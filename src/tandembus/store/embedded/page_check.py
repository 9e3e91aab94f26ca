"""`python -m tandembus.store.embedded.page_check FOLDER`: reads all pages of a store that nobody has open.

A process of its own: the walk takes as long as reading the file does, and would hold up everything else. It prints
what is damaged as a JSON list, and ends when whoever started it closes its standard input.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Final

from tandembus.errors import StoreDamaged, StoreUnavailable
from tandembus.store.embedded.lmdb_file import DATA_FILE, check_length
from tandembus.store.embedded.lmdb_pages import find_store_damage
from tandembus.store.folder_lock import FolderLock

IN_USE: Final = 3
"""Exit code where another process has the store: its pages change while they are read."""
MAX_FINDINGS: Final = 20


def main() -> int:
    folder = Path(sys.argv[1])
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        lock = FolderLock(folder)
    except StoreUnavailable as error:
        print(error, file=sys.stderr)
        return IN_USE
    try:
        check_length(folder / DATA_FILE)
        findings = find_store_damage(folder / DATA_FILE)
    except StoreDamaged as error:
        findings = [str(error)]
    print(json.dumps(findings[:MAX_FINDINGS]))
    lock.release()
    return 0


def _end_with_parent() -> None:
    while os.read(0, 64):
        pass
    os._exit(IN_USE)


if __name__ == "__main__":
    sys.exit(main())
