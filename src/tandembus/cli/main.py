"""The `tandembus` command: a table of commands whose modules are loaded when they are used, completion and man page.

The table is all that `tandembus --help` needs, so neither the server nor an HTTP library is imported to print it.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import ClassVar, Final

import click

from tandembus.cli.failures import report_failures

COMMANDS: Final = {
    "serve": ("Namespace", "serve", "Run a namespace until Ctrl-C."),
    "connection-string": ("Namespace", "keys", "Print the connection string of a namespace on this machine."),
    "dashboard": ("Namespace", "keys", "Print a link to the dashboard of a namespace on this machine."),
    "ca": ("Namespace", "keys", "Print how clients come to trust a namespace's certificate."),
    "policy": (
        "Namespace",
        "policy",
        "Create, list, show, update and delete shared access policies, and regenerate their keys.",
    ),
    "token": ("Namespace", "keys", "Print a token that replaces a key in HTTP requests."),
    "meter": ("Namespace", "topology", "Show the operations counted since the namespace was started."),
    "topology": ("Namespace", "topology", "Show the namespace's processes and stores, and where each fragment is."),
    "fault": ("Namespace", "fault", "Make a part of a namespace fail on purpose, and heal it again."),
    "version": ("Namespace", "keys", "Print the version of tandembus and whether it is compiled."),
    "health": ("Upkeep", "keys", "Ask a namespace on this machine whether it is ready."),
    "doctor": ("Upkeep", "doctor", "Find what keeps a namespace on this machine from working, and say what to do."),
    "backup": ("Upkeep", "upkeep", "Copy a whole namespace into a new folder, while it runs or stopped."),
    "restore": ("Upkeep", "upkeep", "Make a data folder out of a backup."),
    "check": ("Upkeep", "upkeep", "Verify every record of a data folder or of a backup, and change nothing."),
    "up": ("Pairs", "up", "Run a primary and a secondary namespace on this machine until Ctrl-C."),
    "pair": ("Pairs", "pair", "Look after a primary namespace and the secondary that holds its backlog."),
    "syphon": ("Pairs", "syphon", "Bring the messages in the backlog queues home to the primary."),
    "cost": ("Pairs", "cost", "Work out what a pair of namespaces would cost on Azure."),
    "queue": ("Entities", "entities", "Create, list, show, update, delete and purge queues."),
    "topic": ("Entities", "entities", "Create, list, show, update and delete topics."),
    "subscription": (
        "Entities",
        "entities",
        "Create, list, show, update, delete and purge subscriptions of a topic.",
    ),
    "rule": ("Entities", "rules", "Choose which of a topic's messages a subscription gets, and change them."),
    "export": ("Entities", "definitions", "Print the entities of a namespace as a Config.json."),
    "import": ("Entities", "definitions", "Create the entities of a Config.json in a running namespace."),
    "spark": ("Pipeline", "spark", "Run a job of the data pipeline on Spark, on this machine or on a cluster."),
    "send": ("Messages", "send", "Send messages to a queue or topic."),
    "receive": ("Messages", "receive", "Receive messages from a queue or subscription and settle them."),
    "peek": ("Messages", "peek", "Look at messages without taking them."),
    "cancel": ("Messages", "peek", "Cancel scheduled messages by their sequence numbers."),
    "message": ("Messages", "peek", "Delete single messages by their sequence numbers."),
    "session": ("Messages", "session", "List sessions, look at their state and change it."),
    "deadletter": ("Messages", "deadletter", "List dead-lettered messages and send them again (alias: dlq)."),
    "completion": ("Shell", "main", "Print what makes a shell complete commands and options."),
    "man": ("Shell", "main", "Print the manual page."),
}
"""Command -> section of the overview, module, and the first line of its help."""

ALIASES: Final = {"dlq": "deadletter"}
PARAGRAPH: Final = "\b\n"
"""Before a paragraph whose lines click leaves as they are."""


class LazyGroup(click.Group):
    """Loads a command when it is called, and suggests one where a name is mistyped."""

    commands_in: ClassVar[Mapping[str, str]] = {}
    """Command -> module."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands_in)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = ALIASES.get(cmd_name, cmd_name)
        if name not in self.commands_in:
            return None
        module = importlib.import_module(f"tandembus.cli.{self.commands_in[name]}")
        command: click.Command = getattr(module, "import_" if name == "import" else name.replace("-", "_"))
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from difflib import get_close_matches

            if alike := get_close_matches(args[0], self.list_commands(ctx), 1):
                raise click.UsageError(f"{error.message} Did you mean '{alike[0]}'?", ctx) from None
            raise


class TandembusGroup(LazyGroup):
    """Turns every expected failure into a text with an exit code."""

    commands_in: ClassVar[Mapping[str, str]] = {name: module for name, (_, module, _) in COMMANDS.items()}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for section in dict.fromkeys([section for section, _, _ in COMMANDS.values()]):
            with formatter.section(section):
                formatter.write_dl([(name, help) for name, (where, _, help) in COMMANDS.items() if where == section])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Answers in JSON if it was asked for, even where the rest of the command line is wrong."""
        options = args[: args.index("--")] if "--" in args else args
        ctx.meta["json"] = "--json" in options
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        with report_failures(ctx):
            return super().invoke(ctx)


def _print_version(context: click.Context, _: click.Parameter, is_asked: bool) -> None:
    command = main.get_command(context, "version") if is_asked else None
    if command is not None:
        context.invoke(command, as_json=False)
        context.exit()


@click.group(
    cls=TandembusGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 not found, 4 not authorized, "
    "5 unreachable, 6 exists already, 7 try again later, 9 warnings only (doctor), 130 interrupted.",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="The same as `tandembus version`.",
)
def main() -> None:
    """A message broker that speaks the protocol of Azure Service Bus, and a client for any such namespace.

    \b
    Start a namespace, make a queue, send and receive:
      tandembus serve
      tandembus queue create orders
      tandembus send orders "hello"
      tandembus receive orders

    Commands that talk to a namespace find it through --connection-string or --data, else the environment variable
    TANDEMBUS_CONNECTION_STRING, else the namespace that was last served from TANDEMBUS_DATA or ./tandembus-data.
    """


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print what makes a shell complete commands and options.

    \b
    Examples:
      eval "$(tandembus completion bash)"        in ~/.bashrc; likewise zsh in ~/.zshrc
      tandembus completion fish > ~/.config/fish/completions/tandembus.fish
    """
    from click.shell_completion import get_completion_class

    if (kind := get_completion_class(shell)) is not None:
        click.echo(kind(main, {}, "tandembus", "_TANDEMBUS_COMPLETE").source())


@click.command()
def man() -> None:
    """Print the manual page.

    \b
    Examples:
      tandembus man | man -l -
    """
    click.echo('.TH TANDEMBUS 1 "" tandembus\n.SH NAME\ntandembus \\- a message broker and its command line')
    for path, command in _commands(main, "tandembus"):
        context = click.Context(command, info_name=path)
        usage = " ".join([path, *command.collect_usage_pieces(context)])
        click.echo(f".SH {_roff(path.upper())}\n.B {_roff(usage)}\n.PP\n{_paragraphs(command.help or '')}")
        for parameter in command.params:
            if isinstance(parameter, click.Option) and (record := parameter.get_help_record(context)) is not None:
                click.echo(f".TP\n.B {_roff(record[0])}\n{_roff(record[1])}")


def _commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            if (each := command.get_command(context, name)) is not None:
                yield from _commands(each, f"{path} {name}")


def _paragraphs(help: str) -> str:
    """Help in the language of man pages. Paragraphs that click leaves as they are keep their lines here, too."""
    shown = []
    for paragraph in help.split("\n\n"):
        text = _roff(paragraph.removeprefix(PARAGRAPH))
        shown.append(f".nf\n{text}\n.fi" if paragraph.startswith(PARAGRAPH) else text)
    return "\n.PP\n".join(shown)


def _roff(text: str) -> str:
    """A line that begins with a dot or an apostrophe would be a request."""
    lines = text.replace("\\", "\\e").replace("-", "\\-").split("\n")
    return "\n".join([f"\\&{line}" if line.startswith((".", "'")) else line for line in lines])
