"""`tandembus doctor`: finds what keeps a namespace on this machine from starting, staying up or keeping its data.

It reads and never repairs. `tandembus check` verifies single records; the doctor opens each store and, with `--deep`,
does the same.
"""

from __future__ import annotations

import contextlib
import os
import platform
import resource
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

import click
from cryptography import x509
from rich.text import Text

import tandembus
from tandembus import build
from tandembus.cli.data_folder import ServedNamespace, served_from
from tandembus.cli.failures import FAILED, WARNINGS, Failure
from tandembus.cli.output import counted, print_json, print_table, say
from tandembus.cli.printable import printable
from tandembus.cli.starting import listeners, named
from tandembus.cli.target import json_option
from tandembus.cli.upkeep import byte_progress
from tandembus.clock import SystemClock
from tandembus.config import ConfigurationError, ServeSettings, load_settings, unknown_variables
from tandembus.errors import BusError
from tandembus.front_end.listener import listen
from tandembus.node.run_folder import INSTALL_KEY_FILE
from tandembus.node.store_folders import PARTIAL, catalog_folder, require_whole, store_count
from tandembus.node.tuning import SPARE_FILES
from tandembus.node.upkeep.check import Part, check_folder, check_quickly
from tandembus.node.upkeep.folders import environments_of, nearest_existing
from tandembus.security.key_file import KEY_FILE
from tandembus.security.tls import RENEW_BEFORE, TlsFiles, server_context
from tandembus.store.embedded.environment import MIN_MAP_BYTES
from tandembus.store.embedded.lmdb_file import DATA_FILE
from tandembus.store.folder_lock import holder_of

Level = Literal["ok", "warning", "problem"]
Begun = Callable[[int], Callable[[int], None]]
HEADINGS: Final = ("area", "subject", "", "what was found")
STYLES: Final = {"ok": "green", "warning": "yellow", "problem": "bold red"}
EXIT_CODES: Final = {"ok": 0, "warning": WARNINGS, "problem": FAILED}
NETWORK_FILE_SYSTEMS: Final = ("nfs", "cifs", "smb", "9p", "ceph", "afs", "lustre", "fuse.")
IN_MEMORY: Final = ("tmpfs", "ramfs")
EARLIEST: Final = datetime(2025, 1, 1, tzinfo=UTC).timestamp()
PROCESS_BYTES: Final = 96 << 20
"""Address space of a process before it maps a store."""
SHOWN_DAMAGE: Final = 3
GIB: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Finding:
    area: str
    subject: str
    level: Level
    text: str
    advice: str | None = None
    """What to do next; None with the level `ok`."""


@click.command()
@click.option("--data", type=click.Path(path_type=Path), help="Data folder.  [default: ./tandembus-data]")
@click.option("--config", type=click.Path(path_type=Path), help="The settings that the namespace is started with.")
@click.option("--host", help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--amqp-port", type=int, help="AMQP port.  [default: 5672]")
@click.option("--amqps-port", help="AMQP over TLS port, or 'off'.  [default: 5671]")
@click.option("--http-port", type=int, help="HTTP port.  [default: 5300]")
@click.option("--brokers", type=int, help="Message broker processes.  [default: 0]")
@click.option("--front-ends", type=int, help="Front-end processes.  [default: 1]")
@click.option("--deep", is_flag=True, help="Verify every record, as `tandembus check` does.")
@json_option
def doctor(config: Path | None, deep: bool, as_json: bool, **flags: object) -> None:
    """Find what keeps a namespace on this machine from working, and say what to do.

    The namespace may be running or stopped. Settings are read as `serve` reads them: give the same file and flags.
    Exit code 0: all is well; 9: there are warnings; 1: there are problems.

    \b
    Examples:
      tandembus doctor
      tandembus doctor --data /var/lib/tandembus --config /etc/tandembus.toml --deep
      tandembus doctor --json

    \b
    JSON: {"level": "ok" | "warning" | "problem",
           "findings": [{"area", "subject", "level", "text", "advice"}]}
    """
    with byte_progress("checking") as begun:
        findings = list(_examine(config, {name: flag for name, flag in flags.items() if flag is not None}, deep, begun))
    levels = {finding.level for finding in findings}
    level: Level = "problem" if "problem" in levels else "warning" if "warning" in levels else "ok"
    if as_json:
        print_json({"level": level, "findings": [asdict(finding) for finding in findings]})
    else:
        print_table(HEADINGS, [_row(finding) for finding in findings])
        count = len([finding for finding in findings if finding.level != "ok"])
        say()
        say(("all is well", "green") if level == "ok" else (f"{counted(count, 'finding')} to look at", STYLES[level]))
    click.get_current_context().exit(EXIT_CODES[level])


def _row(finding: Finding) -> list[object]:
    text = Text(printable(finding.text))
    if finding.advice:
        text.append("\n" + printable(finding.advice), "cyan")
    return [finding.area, finding.subject, Text(finding.level, STYLES[finding.level]), text]


def _examine(config: Path | None, given: dict[str, object], is_deep: bool, begun: Begun) -> Iterator[Finding]:
    """Runs every check. A check that fails is itself a problem, and the others still run."""
    try:
        settings = load_settings(config, os.environ, given)
        yield Finding("configuration", "settings", "ok", f"from {config}" if config else "defaults and flags")
    except ConfigurationError as error:
        advice = "Correct it: docs/configuration.md lists all settings."
        yield Finding("configuration", "settings", "problem", str(error), advice)
        settings = load_settings(None, {}, {name: given[name] for name in ("data",) if name in given})
    for variable, advice in unknown_variables(os.environ):
        yield Finding("configuration", "environment", "warning", f"{variable} has no effect", advice)
    data, owner = settings.data, holder_of(catalog_folder(settings.data))
    checks: tuple[tuple[str, Callable[[], Iterable[Finding]]], ...] = (
        ("configuration", lambda: [_keys(settings)]),
        ("configuration", lambda: [_certificate(settings)]),
        ("ports", lambda: _ports(settings, owner)),
        ("disk", lambda: _disk(settings)),
        ("clock", lambda: [_clock(data)]),
        ("limits", lambda: [_open_files(settings), _address_space(settings)]),
        ("stores", lambda: _stores(data, owner, is_deep, begun)),
        ("installation", lambda: [_version()]),
    )
    for area, check in checks:
        try:
            yield from check()
        except (OSError, BusError, ValueError) as error:
            advice = "Run this as the user that runs the namespace."
            yield Finding(area, "check", "problem", f"the check failed: {error}", advice)


def _keys(settings: ServeSettings) -> Finding:
    own = [settings.data / name for name in (KEY_FILE, INSTALL_KEY_FILE, "tls/ca.key", "tls/server.key")]
    for path in (*own, settings.tls_private_key):
        if path is not None and path.is_file() and (mode := stat.S_IMODE(path.stat().st_mode)) & 0o007:
            advice = f"Run `chmod 600 {path}`, and replace the key if others may have read it."
            return Finding("configuration", "keys", "problem", f"other users can read {path} (mode {mode:o})", advice)
    return Finding("configuration", "keys", "ok", "readable by their owner only")


def _certificate(settings: ServeSettings) -> Finding:
    path, key = settings.tls_certificate, settings.tls_private_key
    advice = "Replace it and restart the namespace."
    if path is None or key is None:
        path, advice = settings.data / "tls" / "server.pem", "Restart the namespace: it makes a new certificate."
        if not path.is_file():
            return Finding("configuration", "certificate", "ok", "the first start makes one")
    try:
        if key is not None:
            if b"ENCRYPTED" in key.read_bytes():  # OpenSSL would ask for the passphrase here and at every start
                raise ValueError(f"{key} has a passphrase")
            server_context(TlsFiles(None, path, key))
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, BusError, ValueError) as error:
        return Finding("configuration", "certificate", "problem", f"{path} cannot be used: {error}", advice)
    now = datetime.fromtimestamp(SystemClock().now(), UTC)
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    text = f"valid from {begins:%Y-%m-%d} until {ends:%Y-%m-%d}"
    if not begins <= now < ends:
        return Finding("configuration", "certificate", "problem", f"{path} is only {text}", advice)
    # A short-lived certificate is renewed by a program: warn only in its last quarter.
    is_ending = ends - now < min(RENEW_BEFORE, (ends - begins) / 4)
    return Finding(
        "configuration", "certificate", "warning" if is_ending else "ok", text, advice if is_ending else None
    )


def _ports(settings: ServeSettings, owner: int | None) -> Iterator[Finding]:
    served: ServeSettings | ServedNamespace = settings
    if owner is not None:
        with contextlib.suppress(Failure):  # it may run on other ports than these settings name
            served = served_from(settings.data)
    ports = {"amqp": served.amqp_port, "http": served.http_port, "amqps": served.amqps_port}
    places = [(name, served.host, port) for name, port in ports.items() if port is not None]
    places += [(f"listener {host}:{port}", host, port) for host, port in settings.further_addresses]
    for name, host, port in places:
        try:
            listen(host, port, is_ipv6_alone=name not in ports).close()
            yield Finding("ports", name, "ok", f"{port}: free" if port else "any free port")
        except OSError as error:
            pids = listeners(port)
            if owner is not None and any(_is_of(pid, owner) for pid in pids):
                yield Finding("ports", name, "ok", f"{port}: served by this namespace (process {owner})")
                continue
            text = f"{port}: taken by {named(pids)}" if pids else f"{port}: {error}"
            advice = "Stop that process, or choose another port (--amqp-port, --http-port, --amqps-port, listeners)."
            yield Finding("ports", name, "problem", text, advice)


def _is_of(pid: int, ancestor: int) -> bool:
    """True if `pid` is the process `ancestor` or a descendant of it."""
    while pid > 1 and pid != ancestor:
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[1])
        except OSError:
            return False
    return pid == ancestor


def _disk(settings: ServeSettings) -> Iterator[Finding]:
    folder, advice = nearest_existing(settings.data), "Choose another folder with --data."
    if not folder.is_dir():
        yield Finding("disk", "data folder", "problem", f"{folder} is not a folder", advice)
        return
    kind = _file_system_of(folder)
    if kind.startswith(NETWORK_FILE_SYSTEMS):
        text = f"{folder} is on a network file system ({kind}), where locks and memory maps are not reliable"
        yield Finding("disk", "file system", "problem", text, "Keep the data folder on a disk of this machine.")
    elif kind in IN_MEMORY or kind == "overlay":
        text = f"{folder} is in memory or in a container's image ({kind}): a restart loses it"
        yield Finding("disk", "file system", "warning", text, "Mount a volume and keep the data folder there.")
    else:
        yield Finding("disk", "file system", "ok", kind)
    volume = os.statvfs(folder)
    if volume.f_flag & os.ST_RDONLY or not os.access(folder, os.W_OK | os.X_OK):
        advice = "Mount it for writing, run as a user who may write, or choose another folder with --data."
        yield Finding("disk", "data folder", "problem", f"this user cannot write to {folder}", advice)
    free, size = volume.f_bavail * volume.f_frsize, volume.f_blocks * volume.f_frsize
    limits = settings.limits
    share = min(max(size // 20, limits.min_store_reserve_bytes), limits.max_store_reserve_bytes)
    reserve = limits.store_reserve_bytes if limits.store_reserve_bytes is not None else share
    level: Level = "problem" if free < reserve else "warning" if free < 4 * reserve else "ok"
    text = f"{free / GIB:,.1f} GiB free of {size / GIB:,.1f} GiB; sends are refused below {reserve / GIB:,.1f} GiB"
    yield Finding("disk", "room", level, text, None if level == "ok" else "Make room on the volume.")
    require_whole(settings.data)
    for one in sorted(settings.data.absolute().parent.glob(f"{settings.data.name}{PARTIAL}*")):
        text = f"{one} is left from a backup or restore that did not finish"
        yield Finding("disk", "leftovers", "warning", text, "Remove it if no backup or restore is running.")


def _file_system_of(folder: Path) -> str:
    """The type of the innermost mount that holds a folder; empty where the system has no /proc."""
    found, resolved = ("", ""), f"{folder.resolve()}/"
    mounts = Path("/proc/self/mounts")
    for line in os.fsdecode(mounts.read_bytes()).splitlines() if mounts.exists() else ():
        _, at, kind, *_ = [*line.split(" "), "", ""]
        at = at.replace("\\040", " ").rstrip("/") + "/"
        if resolved.startswith(at) and len(at) >= len(found[0]):
            found = (at, kind)
    return found[1]


def _clock(data: Path) -> Finding:
    now = SystemClock().now()
    newest = max(((one / DATA_FILE).stat().st_mtime for one in environments_of(data)), default=0.0)
    shown = datetime.fromtimestamp(now, UTC).isoformat(timespec="seconds")
    if now < EARLIEST or newest > now + 60:
        text = f"the clock says {shown}" + (
            f"; a store was written {newest - now:,.0f} s later" if newest > now else ""
        )
        advice = "Set the clock: messages would expire or be scheduled at the wrong time."
        return Finding("clock", "time", "problem", text, advice)
    return Finding("clock", "time", "ok", shown)


def _open_files(settings: ServeSettings) -> Finding:
    most, wanted = resource.getrlimit(resource.RLIMIT_NOFILE)[1], settings.limits.max_connections + SPARE_FILES
    if most != resource.RLIM_INFINITY and most < wanted:
        text = f"at most {most:,}, but {settings.limits.max_connections:,} connections need {wanted:,}"
        advice = f"Raise the limit (`ulimit -Hn {wanted}`, LimitNOFILE= of systemd), or lower limits.max_connections."
        return Finding("limits", "open files", "warning", text, advice)
    return Finding("limits", "open files", "ok", f"enough for {settings.limits.max_connections:,} connections")


def _address_space(settings: ServeSettings) -> Finding:
    """All stores of a process are mapped at once, each beside a copy of the catalog."""
    limits, most = settings.limits, resource.getrlimit(resource.RLIMIT_AS)[0]
    stores = -(-store_count(settings) // max(settings.brokers, 1))
    wanted = stores * limits.store_map_size_bytes + (stores + 1) * limits.catalog_map_size_bytes + PROCESS_BYTES
    if most == resource.RLIM_INFINITY or most >= wanted:
        return Finding("limits", "address space", "ok", f"enough for {counted(stores, 'store')} in a process")
    # One store shrinks its map to what it gets; of several, the last one may get nothing.
    fits = stores == 1 and most >= limits.catalog_map_size_bytes + MIN_MAP_BYTES + PROCESS_BYTES
    advice = "Remove the limit (`ulimit -v unlimited`), or lower limits.store_map_size_bytes."
    text = f"limited to {most / GIB:,.1f} GiB, but the stores of a process map {wanted / GIB:,.1f} GiB"
    return Finding("limits", "address space", "warning" if fits else "problem", text, advice)


def _stores(data: Path, owner: int | None, is_deep: bool, begun: Begun) -> Iterator[Finding]:
    text = "not running" if owner is None else f"running (process {owner})"
    yield Finding("stores", "namespace", "ok", text)
    if not environments_of(data):
        yield Finding("stores", "data", "ok", f"nothing in {data} yet: the first start creates it")
        return
    for part in check_folder(data, begun) if is_deep else check_quickly(data):
        yield _store(part, is_deep)


def _store(part: Part, is_deep: bool) -> Finding:
    if part.damage_count:
        more = part.damage_count - SHOWN_DAMAGE
        text = "; ".join(part.findings[:SHOWN_DAMAGE]) + (f"; and {more:,} more" if more > 0 else "")
        advice = "`tandembus check` lists all damage; `tandembus restore` brings a backup back."
        return Finding("stores", part.name, "problem", text, advice)
    if part.quarantined_count:
        text = f"{counted(part.quarantined_count, 'damaged message')} put aside"
        return Finding("stores", part.name, "warning", text, "Check the health of the disk, and keep backups.")
    text = f"{part.record_count:,} records, all verified" if is_deep else "opens"
    return Finding("stores", part.name, "ok", text)


def _version() -> Finding:
    current = build.current()
    text = f"tandembus {tandembus.__version__}, {current.kind}, Python {platform.python_version()}"
    if not current.sources_fit:
        advice = "Install it again: `make install`, or `pip install` of this version."
        return Finding("installation", "version", "warning", f"{text}, not built from the sources beside it", advice)
    return Finding("installation", "version", "ok", text)
