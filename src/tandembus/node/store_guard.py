"""Checks a store before LMDB opens it: LMDB follows damaged pages, and crashes the process that has it open.

Most starts look at the first pages only. All pages are read, in a child process, where there is reason to: the store's
process has crashed twice in a row, or LMDB itself has met a page that cannot be. A damaged store is not opened, and
nothing of it is changed. The finding is kept in a file beside it, so that later starts need not find it again.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final, final

from tandembus.errors import StoreDamaged, StoreUnavailable
from tandembus.node.child_process import child_environment, python_command
from tandembus.security.key_file import write_private
from tandembus.store.embedded.lmdb_file import DATA_FILE, begin_with_zeros, hold_only_zeros
from tandembus.store.folder_lock import FolderLock

log = logging.getLogger("tandembus.node")

CHECK_MODULE: Final = "tandembus.store.embedded.page_check"
DAMAGED_FILE: Final = "damaged.json"
"""In a store's folder: what was found, and the size and time of the file in which it was found. It counts for as long
as the file is that one."""


def known_findings(folder: Path) -> list[str]:
    """Returns the damage found in this store by an earlier check, if its file is still the same."""
    try:
        kept = json.loads((folder / DAMAGED_FILE).read_bytes())
        return [str(one) for one in kept["findings"]] if kept["file"] == _mark_of(folder / DATA_FILE) else []
    except (OSError, ValueError, TypeError, KeyError):
        return []


def _mark_of(path: Path) -> list[int]:
    """Changes with the file."""
    found = path.stat()
    return [found.st_ino, found.st_size, found.st_mtime_ns]


@final
class StoreGuard:
    def __init__(self, folder: Path, is_placed: Callable[[], bool]) -> None:
        """`is_placed`: whether the catalog, or a copy of it, knows of fragments in this store."""
        self._folder = folder
        self._path = folder / DATA_FILE
        self._is_placed = is_placed

    async def check(self, is_suspect: bool) -> None:
        """Raises StoreDamaged, with what was found, for a store that must not be opened, and StoreUnavailable where
        that cannot be told."""
        try:
            self._check_first_pages()
            self._check_finding()
            if is_suspect and self._path.exists():
                await self._check_pages()
        except (OSError, ValueError) as error:
            raise StoreUnavailable(f"{self._path} could not be checked: {error}") from error

    async def _check_pages(self) -> None:
        log.warning("the pages of the messaging store in %s are checked before it is opened", self._folder)
        findings = await self._walk()
        if findings:
            self._keep(findings)
            raise self._damaged(findings)

    def _check_first_pages(self) -> None:
        """LMDB writes the first pages when it makes a file. A power loss right after that may leave zeros."""
        if not begin_with_zeros(self._path):
            return
        if not hold_only_zeros(self._path):
            raise StoreDamaged(f"{self._path} is damaged: its first pages hold zeros. Nothing was changed")
        if self._is_placed():
            raise StoreDamaged(
                f"{self._path} is damaged: it holds nothing but zeros, and the catalog knows of messages there. "
                "Nothing was changed"
            )
        lock = FolderLock(self._folder)
        log.warning("%s holds nothing but zeros, and no entity is there: it is made again", self._path)
        self._path.unlink()
        lock.release()

    def _check_finding(self) -> None:
        findings = known_findings(self._folder)
        if findings:
            raise self._damaged(findings)

    def _keep(self, findings: list[str]) -> None:
        content = json.dumps({"file": _mark_of(self._path), "findings": findings}, indent=2) + "\n"
        try:
            write_private(self._folder / DAMAGED_FILE, content.encode())
        except OSError as error:
            log.error("what was found in %s cannot be written down: %s", self._path, error)

    def _damaged(self, findings: list[str]) -> StoreDamaged:
        further = f" (and {len(findings) - 1} further findings)" if len(findings) > 1 else ""
        return StoreDamaged(
            f"{self._path} is damaged: {findings[0]}{further}. It is not opened and nothing was changed; "
            "stop the namespace and restore a backup"
        )

    async def _walk(self) -> list[str]:
        pipe = asyncio.subprocess.PIPE
        command = [*python_command(), "-m", CHECK_MODULE, str(self._folder)]
        process = await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, stderr=pipe, env=child_environment()
        )
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            # Its standard input stays open: closed, it would tell it to end.
            output, errors = await asyncio.gather(process.stdout.read(), process.stderr.read())
            code = await process.wait()
        except BaseException:
            process.kill()
            raise
        if code != 0:
            reason = errors.decode(errors="replace").strip().splitlines()[-1:] or [f"exit code {code}"]
            raise StoreUnavailable(f"the pages of {self._path} could not be checked: {reason[0]}")
        return [str(one) for one in json.loads(output)]
