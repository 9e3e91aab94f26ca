"""Puts a namespace's certificate authority where programs look for those they trust, and takes it out again.

Each change can be repeated, and one that fails leaves the store as it was.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from tandembus.cli.failures import NOT_FOUND, Failure

STORES: Final = ("system", "certifi", "java")
_LOCAL: Final = Path("/usr/local/share/ca-certificates")
_TRUSTED: Final = Path("/etc/ssl/certs")
_CHOSEN: Final = Path("/etc/ca-certificates.conf")
_CACERTS: Final = ("-cacerts", "-storepass", "changeit")
"""The store of a Java runtime, and the password that it comes with."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a store that is not made yet. `steps` are for people."""

    place: str
    is_needed: bool
    steps: str
    make: Callable[[], object]


def planned(store: str, ca: Path, is_install: bool, python: str | None) -> Change:
    # Named after its content: the authorities of several namespaces stand side by side.
    name = f"tandembus-{hashlib.sha256(ssl.PEM_cert_to_DER_cert(ca.read_text())).hexdigest()[:16]}"
    if store == "system":
        return _of_system(name, ca, is_install)
    if store == "java":
        return _of_java(name, ca, is_install)
    return _of_certifi(name, ca, is_install, python or sys.executable)


def _of_system(name: str, ca: Path, is_install: bool) -> Change:
    update = shutil.which("update-ca-certificates", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if update is None:
        advice = f"Add {ca} to the authorities of this system with its own tool."
        raise Failure("update-ca-certificates is not installed.", NOT_FOUND, advice, "StoreNotFound")
    path = _LOCAL / f"{name}.crt"
    traces = path.exists(), os.path.lexists(_TRUSTED / f"{name}.pem")
    steps = f"{'write' if is_install else 'delete'} {path}, run {update}"
    is_needed = not all(traces) if is_install else any(traces)
    return Change(str(_TRUSTED), is_needed, steps, partial(_change_system, update, path, ca if is_install else None))


def _change_system(update: str, path: Path, ca: Path | None) -> None:
    before = path.read_bytes() if path.exists() else None
    try:
        _put(path, ca.read_bytes() if ca else None)
        with tempfile.NamedTemporaryFile("w") as chosen:
            # Hooks, such as that of Debian's Java, take out only what this list strikes out.
            chosen.write(_CHOSEN.read_text() + ("" if ca else f"!{path.name}\n"))
            chosen.flush()
            _run(update, "--certsconf", chosen.name)
    except BaseException:
        _put(path, before)
        raise


def _of_certifi(name: str, ca: Path, is_install: bool, python: str) -> Change:
    try:
        bundle = Path(_run(python, "-c", "import certifi; print(certifi.where())").strip()).resolve()
    except (Failure, OSError):
        advice = "--python names the Python of the programs that are to trust the namespace; it has to have certifi."
        raise Failure(f"{python} does not find certifi.", NOT_FOUND, advice, "StoreNotFound") from None
    if bundle.is_relative_to(_TRUSTED):
        raise Failure(f"certifi of {python} reads the system's store.", advice="Choose system in place of certifi.")
    begin, end = f"\n# {name}: begin\n".encode(), f"# {name}: end\n".encode()
    before, block = bundle.read_bytes(), begin + ca.read_bytes() + end
    without = re.sub(re.escape(begin) + b".*?" + re.escape(end), b"", before, flags=re.DOTALL)
    is_needed = block not in before if is_install else without != before
    steps = f"{'append' if is_install else 'delete'} the CA between two marker comments"
    return Change(str(bundle), is_needed, steps, partial(_put, bundle, without + block if is_install else without))


def _of_java(name: str, ca: Path, is_install: bool) -> Change:
    java, home, path = shutil.which("java"), os.environ.get("JAVA_HOME"), os.environ.get("PATH", "")
    beside = f"{Path(java).resolve().parent}:{path}" if java else path
    keytool = shutil.which("keytool", path=str(Path(home, "bin")) if home else beside)
    if keytool is None:
        advice = "Install Java, or set JAVA_HOME to the runtime of the programs that are to trust the namespace."
        raise Failure(f"There is no keytool in {home or 'the PATH'}.", NOT_FOUND, advice, "StoreNotFound")
    is_there = f"\n{name}," in _run(keytool, "-list", *_CACERTS)
    how = ("-importcert", "-noprompt", "-file", str(ca)) if is_install else ("-delete",)
    command = (keytool, *how, *_CACERTS, "-alias", name)
    place = str(Path(keytool).resolve().parents[1] / "lib/security/cacerts")
    return Change(place, is_there != is_install, " ".join(command), partial(_run, *command))


def _run(*command: str) -> str:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        said = " ".join(f"{done.stdout} {done.stderr}".split())
        if refused := re.search("Permission denied|Read-only file system", said):
            raise PermissionError(errno.EACCES, refused[0])
        raise Failure(f"{command[0]} failed: {said}")
    return done.stdout


def _put(path: Path, content: bytes | None) -> None:
    """At once: who reads the file meanwhile finds all of the old or all of the new. None deletes it."""
    if content is None:
        path.unlink(missing_ok=True)
        return
    new = path.with_name(f".{path.name}.new")
    try:
        new.write_bytes(content)
        new.chmod(path.stat().st_mode & 0o777 if path.exists() else 0o644)
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
