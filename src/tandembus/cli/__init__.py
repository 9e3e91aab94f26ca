"""The `tandembus` command: one module per command, loaded only when it is used.

The table below is all that `tandembus --help` needs, so that neither the server nor an HTTP library is
imported just to print it.
"""

from __future__ import annotations

import importlib
from typing import Final

import click

from tandembus.cli.failures import report_failures

COMMANDS: Final = {
    "serve": ("tandembus.cli.serve", "serve", "Run a namespace until Ctrl-C."),
    "up": ("tandembus.cli.up", "up", "Run a primary and a secondary namespace on this machine until Ctrl-C."),
    "version": (
        "tandembus.cli.version",
        "version",
        "Say which tandembus this is, and whether it is compiled.",
    ),
    "connection-string": (
        "tandembus.cli.connection_string",
        "connection_string",
        "Print the connection string of a namespace on this machine.",
    ),
    "dashboard": (
        "tandembus.cli.dashboard",
        "dashboard",
        "Print a link to the dashboard of a namespace on this machine.",
    ),
    "ca": ("tandembus.cli.ca", "ca", "Say how clients come to trust a namespace's certificate."),
    "export": ("tandembus.cli.definitions", "export", "Print the entities of a namespace as a Config.json."),
    "import": ("tandembus.cli.definitions", "import_", "Create the entities of a Config.json in a running namespace."),
    "queue": ("tandembus.cli.queue", "queue", "Create, list, show, update, delete and purge queues."),
    "topic": ("tandembus.cli.topic", "topic", "Create, list, show, update and delete topics."),
    "subscription": (
        "tandembus.cli.subscription",
        "subscription",
        "Create, list, show, update, delete and purge subscriptions of a topic.",
    ),
    "rule": (
        "tandembus.cli.rule",
        "rule",
        "Say which of a topic's messages a subscription gets, and what is done to them.",
    ),
    "policy": (
        "tandembus.cli.policy",
        "policy",
        "Create, list, show, update and delete shared access policies, and regenerate their keys.",
    ),
    "session": ("tandembus.cli.session", "session", "List sessions, look at their state and change it."),
    "send": ("tandembus.cli.send", "send", "Send messages to a queue or topic."),
    "receive": ("tandembus.cli.receive", "receive", "Receive messages from a queue or subscription and settle them."),
    "peek": ("tandembus.cli.peek", "peek", "Look at messages without taking them."),
    "cancel": ("tandembus.cli.cancel", "cancel", "Cancel scheduled messages by their sequence numbers."),
    "message": ("tandembus.cli.message", "message", "Delete single messages by their sequence numbers."),
    "deadletter": (
        "tandembus.cli.deadletter",
        "deadletter",
        "List dead-lettered messages and send them again.",
    ),
    "meter": (
        "tandembus.cli.meter",
        "meter",
        "Show which operations were counted since the namespace was started.",
    ),
    "pair": (
        "tandembus.cli.pair",
        "pair",
        "Look after a primary namespace and the secondary that holds its backlog.",
    ),
    "syphon": ("tandembus.cli.syphon", "syphon", "Bring the messages in the backlog queues home to the primary."),
    "cost": ("tandembus.cli.cost", "cost", "Work out what a pair of namespaces would cost on Azure."),
    "spark": (
        "tandembus.cli.spark",
        "spark",
        "Run a job of the data pipeline on Spark, on this machine or on a cluster.",
    ),
    "topology": (
        "tandembus.cli.topology",
        "topology",
        "Show the namespace's processes and stores, and which fragment is where.",
    ),
    "fault": (
        "tandembus.cli.fault",
        "fault",
        "Make a part of a namespace fail on purpose, and heal it again.",
    ),
    "backup": ("tandembus.cli.backup", "backup", "Copy a whole namespace into a new folder, while it runs or stopped."),
    "restore": ("tandembus.cli.restore", "restore", "Make a data folder out of a backup."),
    "check": (
        "tandembus.cli.check",
        "check",
        "Verify every record of a data folder or of a backup, and change nothing.",
    ),
    "doctor": (
        "tandembus.cli.doctor",
        "doctor",
        "Find what keeps a namespace on this machine from working, and say what to do.",
    ),
    "health": ("tandembus.cli.health", "health", "Ask a namespace on this machine whether it is ready."),
    "token": (
        "tandembus.cli.token",
        "token",
        "Print a token that can be used in place of a key, for HTTP requests.",
    ),
}
"""Command -> module, attribute, and the first line of its help."""

SECTIONS: Final = {
    "Namespace": (
        "serve",
        "connection-string",
        "dashboard",
        "ca",
        "policy",
        "token",
        "meter",
        "topology",
        "fault",
        "version",
    ),
    "Upkeep": ("health", "doctor", "backup", "restore", "check"),
    "Pairs": ("up", "pair", "syphon", "cost"),
    "Entities": ("queue", "topic", "subscription", "rule", "export", "import"),
    "Pipeline": ("spark",),
    "Messages": ("send", "receive", "peek", "cancel", "message", "session", "deadletter"),
}
"""The order in which the overview tells of them."""


class LazyGroup(click.Group):
    """Loads a command when it is called; its subclass says which there are."""

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

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for names in SECTIONS.values() for name in names]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, attribute, _ = COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for heading, names in SECTIONS.items():
            with formatter.section(heading):
                formatter.write_dl([(name, COMMANDS[name][2]) for name in names])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Who asks for JSON gets it also where the rest of the line makes no sense."""
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

    Commands that talk to a namespace find it through --connection-string, else the environment variable
    TANDEMBUS_CONNECTION_STRING, else the namespace that was last served from TANDEMBUS_DATA or ./tandembus-data.
    """


__all__ = ["COMMANDS", "SECTIONS", "LazyGroup", "main"]
