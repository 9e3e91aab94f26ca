"""The command line without a namespace: parsing, help, exit codes, and that the documentation knows every option."""

from __future__ import annotations

import asyncio
import importlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
from click.testing import CliRunner

from tandembus.cli import COMMANDS, SECTIONS, main
from tandembus.cli.failures import Failure, failure_from
from tandembus.cli.settings import FLAG, NOT_OPTIONS, SETTINGS, Setting
from tandembus.cli.spark import JOBS
from tandembus.client import ConnectionLost
from tandembus.client.entities import QueueSettings, Settings, SubscriptionSettings, TopicSettings
from tandembus.errors import (
    BusError,
    EntityAlreadyExists,
    EntityNotFound,
    InvalidOperation,
    MessageTooLarge,
    OperationTimeout,
    QuotaExceeded,
    ServerBusy,
    SessionCannotBeLocked,
    SessionLockLost,
    StoreFull,
    Unauthorized,
)

DOCUMENT = Path(__file__).parents[3] / "docs" / "cli.md"
NOBODY = "Endpoint=sb://127.0.0.1:9/;SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true"
NOBODY_EITHER = NOBODY.replace(":9/", ":8/")


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TANDEMBUS_CONNECTION_STRING", raising=False)
    return CliRunner()


def commands(group: click.Group, path: str = "tandembus") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield f"{path} {name}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")


ALL = dict(commands(main))


def test_the_names_that_scripts_rely_on_are_there() -> None:
    names = [
        "serve",
        "version",
        "connection-string",
        "dashboard",
        "health",
        "ca",
        "export",
        "import",
        "send",
        "receive",
        "peek",
        "cancel",
        "token",
        "topology",
        "meter",
        "cost",
        "up",
        "syphon",
        "doctor",
        "backup",
        "restore",
        "check",
    ]
    groups = {
        "queue": ["create", "list", "show", "update", "delete", "purge"],
        "topic": ["create", "list", "show", "update", "delete"],
        "subscription": ["create", "list", "show", "update", "delete", "purge"],
        "rule": ["add", "list", "show", "delete"],
        "session": ["list", "show-state", "set-state", "clear-state"],
        "policy": ["create", "list", "show", "update", "regenerate", "delete"],
        "message": ["delete"],
        "deadletter": ["list", "resubmit"],
        "fault": ["add", "list", "clear"],
        "pair": ["status"],
        "spark": list(JOBS),
    }
    subcommands = [f"{group} {verb}" for group, verbs in groups.items() for verb in verbs]
    assert sorted(ALL) == sorted(f"tandembus {name}" for name in [*names, *groups, *subcommands])


@pytest.mark.parametrize("path", sorted(ALL))
def test_every_command_and_option_stands_in_the_documentation(path: str) -> None:
    text = DOCUMENT.read_text()
    part = re.search(rf"^##+ {path}$(.*?)(?=^##+ |\Z)", text, re.DOTALL | re.MULTILINE)
    assert part is not None, f"docs/cli.md has no section '{path}'"
    shared = text.split("## Exit codes")[0]
    settings = {option for setting in SETTINGS for option in options_of(setting)}
    for parameter in ALL[path].params:
        if isinstance(parameter, click.Option):
            for option in parameter.opts + parameter.secondary_opts:
                stands = re.search(rf"`{option}[` \n]", part[1]) or re.search(rf"`{option}[` ]", shared)
                assert stands or option in settings, f"{path} {option}"


def options_of(setting: Setting) -> list[str]:
    return [*setting.names, *(f"--no-{name[2:]}" for name in setting.names if setting.type is FLAG)]


def test_every_setting_stands_in_the_documentation_with_the_entities_that_have_it() -> None:
    table = DOCUMENT.read_text().split("## Settings of queues")[1].split("In JSON")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:5]] for line in table.splitlines() if line.startswith("| `")]
    expected = []
    for setting in SETTINGS:
        word = "fixed" if setting.is_fixed else "yes"
        kinds = (QueueSettings, TopicSettings, SubscriptionSettings)
        had = [word if setting.owner in {each.name for each in fields(kind)} else "" for kind in kinds]
        expected.append([", ".join(f"`{option}`" for option in options_of(setting)), *had])
    assert rows == expected


@pytest.mark.parametrize("kind", [QueueSettings, TopicSettings, SubscriptionSettings])
def test_every_field_of_the_settings_has_its_option(kind: type[Settings]) -> None:
    noun = kind.__name__.removesuffix("Settings").lower()
    chosen = {each.name for each in fields(kind)} - NOT_OPTIONS
    fixed = {setting.field for setting in SETTINGS if setting.is_fixed}
    assert chosen <= {parameter.name for parameter in ALL[f"tandembus {noun} create"].params}
    update = ALL[f"tandembus {noun} update"].params
    offered = {parameter.name for parameter in update if not getattr(parameter, "hidden", False)}
    assert chosen & offered == chosen - fixed


@pytest.mark.parametrize("path", sorted(ALL))
def test_every_command_has_help_that_says_what_each_option_means(path: str) -> None:
    assert ALL[path].help
    for parameter in ALL[path].params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{path} {parameter.name}"


@pytest.mark.parametrize("name", COMMANDS)
def test_the_overview_says_what_the_command_says_of_itself(name: str) -> None:
    assert COMMANDS[name][2] == ALL[f"tandembus {name}"].get_short_help_str(200)


def test_the_overview_tells_of_every_command_once() -> None:
    assert sorted(name for names in SECTIONS.values() for name in names) == sorted(COMMANDS)


def test_the_overview_loads_no_command() -> None:
    heavy = "aiohttp", "rich", "lmdb", "tandembus.client"
    script = f"""import sys; from tandembus.cli import main; main(["--help"], standalone_mode=False)
print([module for module in {heavy} if module in sys.modules])"""
    root = DOCUMENT.parents[1]
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=root)
    assert out.stdout.splitlines()[-1] == "[]"


def test_an_unknown_command_is_wrong_usage(runner: CliRunner) -> None:
    result = runner.invoke(main, ["fly"])
    assert result.exit_code == 2
    assert "Did you mean" not in result.stderr


@pytest.mark.parametrize(
    ("line", "meant"), [(["queu"], "queue"), (["recieve", "a"], "receive"), (["spark", "captur"], "capture")]
)
def test_a_command_that_is_mistyped_is_told_the_right_one(runner: CliRunner, line: list[str], meant: str) -> None:
    result = runner.invoke(main, line)
    assert result.exit_code == 2
    assert f"Did you mean '{meant}'?" in result.stderr


def test_without_a_namespace_it_says_how_to_name_one(runner: CliRunner) -> None:
    result = runner.invoke(main, ["peek", "orders"])
    assert result.exit_code == 2
    assert "--connection-string" in result.stderr
    assert "TANDEMBUS_CONNECTION_STRING" in result.stderr


def test_a_text_that_is_no_connection_string_is_wrong_usage(runner: CliRunner) -> None:
    assert runner.invoke(main, ["peek", "orders", "--connection-string", "nonsense"]).exit_code == 2


def test_an_unreachable_namespace_has_its_own_exit_code_and_advice(runner: CliRunner) -> None:
    result = runner.invoke(main, ["peek", "orders"], env={"TANDEMBUS_CONNECTION_STRING": NOBODY})
    assert result.exit_code == 5
    assert "Error: cannot connect" in result.stderr
    assert "tandembus serve" in result.stderr


def test_administration_reports_an_unreachable_namespace_the_same_way(runner: CliRunner) -> None:
    result = runner.invoke(main, ["queue", "list", "--connection-string", NOBODY])
    assert result.exit_code == 5
    assert "cannot be reached: nothing listens on 127.0.0.1:9\n" in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (["peek", "--json"], "Missing argument"),
        (["peek", "orders", "--json", "--no-such-option"], "No such option"),
        (["cost", "--days", "many", "--json"], "many"),
        (
            ["syphon", "--retry-interval", "5m", "--json", "--primary", NOBODY, "--secondary", NOBODY_EITHER],
            "1 s to 2 min",
        ),
        (["queue", "no-such-command", "--json"], "No such command"),
        (["no-such-command", "--json"], "No such command"),
    ],
)
def test_wrong_usage_is_told_to_a_program_in_json_too(runner: CliRunner, line: list[str], told: str) -> None:
    result = runner.invoke(main, line)
    assert result.exit_code == 2
    error = json.loads(result.stderr)["error"]
    assert (error["kind"], error["exit_code"]) == ("WrongUsage", 2)
    assert told in error["message"]
    assert "--help` tells the options" in error["advice"]


def test_an_error_for_a_program_is_one_line_of_json(runner: CliRunner) -> None:
    result = runner.invoke(main, ["peek", "orders", "--json", "--connection-string", NOBODY])
    assert result.stdout == ""
    error = json.loads(result.stderr)["error"]
    assert sorted(error) == ["advice", "exit_code", "kind", "message"]
    assert (error["kind"], error["exit_code"]) == ("ConnectionLost", 5)


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [
        (EntityNotFound("x"), 3),
        (Unauthorized("x"), 4),
        (ConnectionLost("x"), 5),
        (OperationTimeout("x"), 5),
        (EntityAlreadyExists("x"), 6),
        (ServerBusy("x"), 7),
        (StoreFull("x"), 7),
        (SessionCannotBeLocked("x"), 7),
        (SessionLockLost("x"), 7),
        (MessageTooLarge("x"), 1),
        (BusError("x"), 1),
        (PermissionError("x"), 1),
    ],
)
def test_each_kind_of_failure_has_its_exit_code(error: Exception, exit_code: int) -> None:
    assert failure_from(error).exit_code == exit_code


def test_advice_is_about_what_the_command_was_about() -> None:
    assert "topic list" in failure_from(EntityNotFound("x")).advice
    assert "rule list TOPIC" in failure_from(EntityNotFound("x"), "rule").advice
    assert "rule add --replace" in failure_from(EntityAlreadyExists("x"), "rule").advice
    assert "queue update" in failure_from(EntityAlreadyExists("x"), "queue").advice
    assert "--next-session" in failure_from(InvalidOperation("x"), "receive").advice
    assert "--session-id" in failure_from(InvalidOperation("x"), "send").advice
    assert failure_from(InvalidOperation("x"), "queue").advice == ""


def test_what_services_append_for_their_own_logs_is_left_out() -> None:
    failure = failure_from(EntityNotFound("Not there. SubCode=40400. TrackingId:abc, Timestamp:now"))
    assert failure.message == "Not there."


def test_a_certificate_that_is_not_trusted_is_explained() -> None:
    assert "--ca" in failure_from(ConnectionLost("[SSL] certificate verify failed: (_ssl.c)")).advice


def test_an_unexpected_error_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        failure_from(ZeroDivisionError())


@pytest.mark.parametrize(
    "arguments",
    [
        ["send", "orders", "x", "--property", "nope"],
        ["send", "orders", "x", "--property", "n:int=many"],
        ["send", "orders", "x", "--schedule", "sometime"],
        ["send", "orders", "x", "--ttl", "soon"],
        ["send", "orders", "x", "--file", "/no/such/file"],
        ["send", "orders", "x", "--count", "0"],
        ["receive", "orders", "--mode", "grab"],
        ["receive", "orders", "--reason", "without --dead-letter"],
        ["receive", "orders", "--mode", "receive-and-delete", "--abandon"],
        ["receive", "orders", "--mode", "receive-and-delete", "--defer"],
        ["receive", "orders", "--abandon", "--defer"],
        ["receive", "orders", "--abandon", "--follow"],
        ["peek", "orders", "--sub-queue", "other"],
        ["send", "orders", "x", "--property", "b:int=99999999999"],
        ["send", "orders", "x", "--property", "b:long=9999999999999999999"],
        ["peek", "orders", "--ca", str(DOCUMENT)],
        ["queue", "create", ""],
        ["queue", "create", "$cbs"],
        ["queue", "create", "orders", "--lock-duration", "long"],
        ["queue", "update", "orders"],
        ["queue", "update", "orders", "--status", "Sleepy"],
        ["queue", "update", "orders", "--requires-session"],
        ["topic", "create", "events", "--lock-duration", "30s"],
        ["topic", "create", "$events"],
        ["topic", "update", "events"],
        ["topic", "show"],
        ["subscription", "create", "events"],
        ["subscription", "create", "events", "a/b"],
        ["subscription", "create", "events", "x" * 51],
        ["subscription", "create", "events", "audit", "--max-size-mb", "1024"],
        ["subscription", "create", "events", "audit", "--sql", "a = 1", "--true"],
        ["subscription", "update", "events", "audit"],
        ["subscription", "list"],
        ["rule", "add", "events", "audit"],
        ["rule", "add", "events", "audit", "a/b"],
        ["rule", "add", "events", "audit", "r", "--sql", "a = 1", "--subject", "s"],
        ["rule", "add", "events", "audit", "r", "--true", "--false"],
        ["rule", "add", "events", "audit", "r", "--property", "nope"],
        ["rule", "add", "events", "audit", "r", "--true", "--parameter", "a=1"],
        ["receive", "orders", "--session", "s", "--next-session"],
        ["receive", "orders", "--session", "s", "--sub-queue", "dead-letter"],
        ["receive", "orders", "--next-session", "--sub-queue", "dead-letter"],
        ["receive", "orders", "--deferred", "0"],
        ["receive", "orders", "--deferred", "5", "--next-session"],
        ["receive", "orders", "--deferred", "5", "--follow"],
        ["receive", "orders", "--deferred", "5", "--max", "2"],
        ["receive", "or ders"],
        ["session", "list", ""],
        ["session", "list", "orders", "--since", "then"],
        ["session", "show-state", "orders"],
        ["session", "set-state", "orders", "s", "x", "--file", str(DOCUMENT)],
        ["policy", "create", "app"],
        ["policy", "create", "a/b", "--rights", "Send"],
        ["policy", "create", "app", "--rights", "Fly"],
        ["policy", "create", "app", "--rights", ""],
        ["policy", "update", "app"],
        ["policy", "list", "--entity", "$x"],
        ["message", "delete", "orders"],
        ["message", "delete", "orders", "--sequence-number", "0"],
        ["cancel", "orders"],
        ["cancel", "orders", "first"],
        ["deadletter", "resubmit", "orders", "--to", "$elsewhere"],
        ["token", "--lifetime", "never"],
        ["token", "--lifetime", "long"],
        ["meter", "--total", "--entity", "orders"],
    ],
)
def test_bad_values_are_wrong_usage(runner: CliRunner, arguments: list[str]) -> None:
    result = runner.invoke(main, [*arguments, "--connection-string", NOBODY])
    assert result.exit_code == 2, result.output


def test_a_key_for_another_queue_is_not_tried(runner: CliRunner) -> None:
    for_orders = f"{NOBODY};EntityPath=Orders"
    result = runner.invoke(main, ["peek", "bills", "--connection-string", for_orders])
    assert result.exit_code == 2
    assert "is for 'Orders' (EntityPath), not for 'bills'" in result.stderr
    assert runner.invoke(main, ["peek", "orders", "--connection-string", for_orders]).exit_code == 5


def test_a_key_for_a_topic_is_good_for_its_subscriptions(runner: CliRunner) -> None:
    for_events = f"{NOBODY};EntityPath=events"
    for command in (["peek", "events/Subscriptions/audit"], ["subscription", "show", "events", "audit"]):
        assert runner.invoke(main, [*command, "--connection-string", for_events]).exit_code == 5
    for command in (["peek", "events2"], ["rule", "list", "other", "audit"]):
        assert runner.invoke(main, [*command, "--connection-string", for_events]).exit_code == 2


@pytest.mark.parametrize(
    "command",
    [
        ["queue", "delete", "orders"],
        ["queue", "purge", "orders"],
        ["topic", "delete", "events"],
        ["subscription", "delete", "events", "audit"],
        ["subscription", "purge", "events", "audit"],
        ["rule", "delete", "events", "audit", "$Default"],
        ["session", "clear-state", "orders", "s"],
        ["message", "delete", "orders", "--sequence-number", "5"],
        ["policy", "delete", "app"],
        ["policy", "regenerate", "app", "--entity", "orders"],
    ],
)
@pytest.mark.parametrize(("answer", "exit_code"), [(None, 130), (False, 1), (True, 5)])
def test_a_question_can_be_answered_or_interrupted(
    runner: CliRunner, monkeypatch: pytest.MonkeyPatch, command: list[str], answer: bool | None, exit_code: int
) -> None:
    def confirm(*_: object, **__: object) -> bool:
        with pytest.raises(RuntimeError):  # An event loop would keep the first Ctrl-C to itself.
            asyncio.get_running_loop()
        if answer is None:
            raise click.Abort
        return answer

    monkeypatch.setattr("tandembus.cli.target.sys", SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True)))
    monkeypatch.setattr(click, "confirm", confirm)
    result = runner.invoke(main, [*command, "--connection-string", NOBODY])
    assert result.exit_code == exit_code, result.output
    assert "Aborted" not in result.output


def test_too_many_queues_are_no_matter_of_messages(runner: CliRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: object) -> None:
        raise QuotaExceeded("The namespace has 3 entities.")

    monkeypatch.setattr("tandembus.client.administration.Administration.create_queue", refuse)
    result = runner.invoke(main, ["queue", "create", "orders", "--connection-string", NOBODY])
    assert result.exit_code == 1
    assert "limits.max_entities" in result.stderr
    assert "purge" not in result.stderr


def test_the_version_can_be_asked_for_as_an_option(runner: CliRunner) -> None:
    result = runner.invoke(main, ["--version"])
    assert (result.exit_code, result.stdout) == (0, runner.invoke(main, ["version"]).stdout)


def test_version_says_how_it_runs(runner: CliRunner) -> None:
    facts = json.loads(runner.invoke(main, ["version", "--json"]).stdout)
    assert facts["build"] in ("compiled", "interpreted")
    assert facts["build"] in runner.invoke(main, ["version"]).stdout


class TestDataFolder:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        folder = tmp_path / "tandembus-data"
        (folder / "tls").mkdir(parents=True)
        facts = {"name": "shop", "host": "localhost", "amqp_port": 9, "amqps_port": 8, "http_port": 7, "pid": 1}
        (folder / "namespace.json").write_text(json.dumps(facts))
        (folder / "key").write_text("secret\n")
        (folder / "tls" / "ca.pem").write_text("-")
        return folder

    def test_the_connection_string_is_put_together(self, runner: CliRunner, folder: Path) -> None:
        policy = "SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=secret"
        plain = runner.invoke(main, ["connection-string", "--data", str(folder)])
        assert plain.stdout == f"Endpoint=sb://localhost:9/;{policy};UseDevelopmentEmulator=true\n"
        tls = runner.invoke(main, ["connection-string", "--tls", "--json"])
        text = f"Endpoint=sb://localhost:8/;{policy}"
        assert json.loads(tls.stdout) == {"name": "shop", "connection_string": text}

    def test_commands_find_the_namespace_of_the_default_folder(self, runner: CliRunner, folder: Path) -> None:
        result = runner.invoke(main, ["peek", "orders"])
        assert result.exit_code == 5
        assert "localhost:9" in result.stderr

    def test_ca_prints_lines_for_a_shell(self, runner: CliRunner, folder: Path) -> None:
        path = str(folder / "tls" / "ca.pem")
        assert f"export NODE_EXTRA_CA_CERTS={path}" in runner.invoke(main, ["ca"]).stdout
        assert f"connection_verify='{path}'" in runner.invoke(main, ["ca"]).stdout
        facts = json.loads(runner.invoke(main, ["ca", "--json"]).stdout)
        assert facts["ca_path"] == path
        assert set(facts["environment"]) >= {"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"}

    @pytest.mark.parametrize("command", ["connection-string", "ca"])
    def test_a_folder_without_a_namespace_is_not_found(self, runner: CliRunner, command: str) -> None:
        result = runner.invoke(main, [command, "--data", "elsewhere"])
        assert result.exit_code == 3
        assert "tandembus serve" in result.stderr

    def test_a_key_that_is_not_kept_and_a_damaged_file_are_explained(self, runner: CliRunner, folder: Path) -> None:
        (folder / "key").unlink()
        assert "--key" in runner.invoke(main, ["connection-string"]).stderr
        (folder / "namespace.json").write_text("{")
        result = runner.invoke(main, ["connection-string"])
        assert result.exit_code == 1
        assert "damaged" in result.stderr


def test_a_failure_can_be_raised_by_a_command_itself(capsys: pytest.CaptureFixture[str]) -> None:
    Failure("no", 3, "do this").show(as_json=False)
    assert capsys.readouterr().err == "Error: no\nTry:   do this\n"


def test_every_command_module_says_what_it_is_for() -> None:
    for module, _, _ in COMMANDS.values():
        assert importlib.import_module(module).__doc__
