"""What the commands that look after a data folder share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from tandembus.cli import data_folder
from tandembus.cli.failures import EXISTS_ALREADY, FAILED, NOT_FOUND, TRY_LATER, Failure
from tandembus.errors import StoreDamaged, StoreUnavailable
from tandembus.node.upkeep.backup import DestinationExists, NoNamespace
from tandembus.node.upkeep.manifest import BackupError
from tandembus.node.upkeep.restore import NotEmpty

folder_option = click.option(
    "--data",
    type=click.Path(path_type=Path),
    default=data_folder.DEFAULT_FOLDER,
    show_default="./" + data_folder.DEFAULT_FOLDER,
    help="Data folder of the namespace.",
)


@contextmanager
def byte_progress(description: str) -> Iterator[Callable[[int], Callable[[int], None]]]:
    """A bar of bytes, on standard error and for people only; it begins when the total is known."""
    errors = Console(stderr=True)
    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        *columns,
        console=errors,
        transient=True,
        disable=not errors.is_terminal,
    )

    def begun(total: int) -> Callable[[int], None]:
        task = bar.add_task(description, total=total)
        return lambda done: bar.advance(task, done)

    with bar:
        yield begun


@contextmanager
def upkeep_failures() -> Iterator[None]:
    """Failures of these commands, with what to do about them."""
    try:
        yield
    except DestinationExists as error:
        raise Failure(
            str(error), EXISTS_ALREADY, "Name a folder that does not exist yet.", "DestinationExists"
        ) from None
    except NotEmpty as error:
        raise Failure(str(error), EXISTS_ALREADY, "Name a new or an empty folder with --data.", "NotEmpty") from None
    except NoNamespace as error:
        raise Failure(str(error), NOT_FOUND, "--data names another folder.", "NamespaceNotFound") from None
    except BackupError as error:
        raise Failure(str(error), FAILED, "", "BackupError") from None
    except StoreDamaged as error:
        advice = "`tandembus check` tells what is wrong; restore a backup that is sound."
        raise Failure(str(error), FAILED, advice, "StoreDamaged") from None
    except StoreUnavailable as error:
        raise Failure(str(error), TRY_LATER, "", "StoreUnavailable") from None
