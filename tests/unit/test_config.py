"""Settings: where they come from, which wins, what is refused, and that all of them are documented."""

from __future__ import annotations

import dataclasses
import json
import typing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandembus.client.reservations import MAX_RANGES
from tandembus.config import (
    EMULATOR_KEY,
    ConfigurationError,
    IssuerSetting,
    Limits,
    PolicySetting,
    ServeSettings,
    is_loopback,
    load_settings,
    settings_document,
    settings_from_document,
)
from tandembus.namespace.policies import fixed_policies
from tests.covers import covers

DOCUMENT = Path(__file__).parents[2] / "docs" / "configuration.md"
KEY = "planted-secret-key"


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "bus.toml"
    path.write_text(text)
    return path


def refusal(tmp_path: Path, text: str) -> str:
    with pytest.raises(ConfigurationError) as refused:
        load_settings(write(tmp_path, text))
    message = str(refused.value)
    assert str(tmp_path / "bus.toml") in message
    return message


def test_without_anything_the_defaults_hold() -> None:
    settings = load_settings()
    assert settings == ServeSettings()
    assert (settings.name, settings.host, str(settings.data)) == ("tandembus", "127.0.0.1", "tandembus-data")
    assert (settings.amqp_port, settings.amqps_port, settings.http_port) == (5672, 5671, 5300)
    assert settings.brokers == 0
    assert settings.limits.max_message_size_bytes == 262_144
    assert settings.limits.max_entities == 10_000


def test_flags_win_over_the_environment_over_the_file_over_the_defaults(tmp_path: Path) -> None:
    file = write(tmp_path, 'name = "file"\nhost = "file"\namqp_port = 1\nhttp_port = 1\n')
    environment = {
        "TANDEMBUS_NAME": "environment",
        "TANDEMBUS_HOST": "environment",
        "TANDEMBUS_AMQP_PORT": "2",
    }
    settings = load_settings(file, environment, {"name": "flag", "host": None, "brokers": None})
    assert (settings.name, settings.host, settings.amqp_port, settings.http_port) == (
        "flag",
        "environment",
        2,
        1,
    )
    assert settings.brokers == 0


@covers("M13")
def test_limits_come_from_a_table_and_from_the_environment(tmp_path: Path) -> None:
    file = write(tmp_path, "[limits]\nmax_entities = 5\nmax_locks = 6\noperations_per_second = 100\n")
    limits = load_settings(file, {"TANDEMBUS_LIMITS_MAX_ENTITIES": "7"}).limits
    assert (limits.max_entities, limits.max_locks, limits.operations_per_second) == (7, 6, 100)
    assert load_settings(file, {"TANDEMBUS_LIMITS_OPERATIONS_PER_SECOND": "off"}).limits.operations_per_second is None


@covers("M13")
def test_every_limit_is_a_setting(tmp_path: Path) -> None:
    for one in dataclasses.fields(Limits):
        default = one.default
        text = json.dumps("off" if default is None else list(default) if isinstance(default, tuple) else default)
        assert load_settings(write(tmp_path, f"[limits]\n{one.name} = {text}\n")).limits == Limits()


@pytest.mark.parametrize("value", ["off", "Off", "none", False])
def test_the_tls_port_can_be_switched_off_in_every_way(tmp_path: Path, value: object) -> None:
    assert load_settings(flags={"amqps_port": value}).amqps_port is None
    assert load_settings(write(tmp_path, f"amqps_port = {json.dumps(value)}\n")).amqps_port is None
    assert (
        load_settings(environment={"TANDEMBUS_AMQPS_PORT": str(value).lower().replace("false", "off")}).amqps_port
        is None
    )


@covers("M15")
def test_policies_come_from_tables(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        '[[policies]]\nname = "shop"\nkey = "0123456789abcdef"\nrights = ["send", "Listen"]\n'
        '[[policies]]\nname = "till"\nkey = "0123456789abcdef"\nsecondary_key = "fedcba9876543210"\n'
        'rights = ["Manage"]\n',
    )
    assert load_settings(file).policies == (
        PolicySetting("shop", "0123456789abcdef", None, ("Send", "Listen")),
        PolicySetting("till", "0123456789abcdef", "fedcba9876543210", ("Manage",)),
    )


def test_lists_come_from_text_too() -> None:
    assert load_settings(environment={"TANDEMBUS_TLS_NAMES": "a.example, b.example"}).tls_names == (
        "a.example",
        "b.example",
    )


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("nmae = 'x'", ["nmae", "no such setting; did you mean name?"]),
        ("colour = 'x'", ["colour", "no such setting; there are", "amqp_port"]),
        ("[limits]\nmax_lock = 5", ["limits.max_lock", "no such setting", "max_locks"]),
        ("[limit]\nx = 5", ["limit", "no such setting", "limits"]),
        ("amqp_port = 'x'", ["amqp_port", "'x'", "whole number"]),
        ("amqp_port = true", ["amqp_port", "True", "whole number"]),
        ("amqp_port = 5672.0", ["amqp_port", "whole number"]),
        ("amqp_port = 65536", ["amqp_port", "65536", "65535"]),
        ("amqp_port = -1", ["amqp_port", "-1", "0"]),
        (f"[limits]\nmax_ranges = {MAX_RANGES - 1}", ["limits.max_ranges", str(MAX_RANGES - 1), str(MAX_RANGES)]),
        ("name = 5", ["name", "5", "text"]),
        ("name = 'a b'", ["name", "letters"]),
        ("name = ''", ["name"]),
        ("host = ''", ["host"]),
        ("log_level = 'loud'", ["log_level", "'loud'", "debug, info, warning, error"]),
        ("[[issuers]]\nissuer = 'a'\njwks = 'k.json'", ["issuers.a.audience", "at least one"]),
        ("[[issuers]]\nissuer = 'a'\naudience = ['b']", ["issuers.a.jwks", "URL or a file"]),
        ("[[issuers]]\nissuer = 'a'\naudience = ['b']\njwks = 'http://keys.example/'", ["issuers.a.jwks", "https"]),
        ("[[issuers]]\naudience = ['b']\njwks = 'k.json'", ["issuers.issuer"]),
        ("issuers = ['a']", ["expected a [[issuers]] table"]),
        ("accept_any_jwt = true\n[[issuers]]\nissuer = 'a'\naudience = ['b']\njwks = 'k'", ["accept_any_jwt"]),
        ("accept_any_jwt = 'perhaps'", ["accept_any_jwt", "true nor false"]),
        ("accept_any_jwt = true\nhost = '0.0.0.0'", ["accept_any_jwt", "loopback"]),
        ("tls_certificate = 'x.pem'", ["tls_certificate", "tls_private_key", "together"]),
        ("tls_names = 5", ["tls_names", "list"]),
        ("tls_names = [5]", ["tls_names[0]", "text"]),
        ("limits = 5", ["limits", "table"]),
        ("policies = [5]", ["policies[0]", "table"]),
        ("policies = {}", ["policies", "list"]),
        (
            "[[policies]]\nname = 'a'\nkey = '0123456789abcdef'\nrights = []",
            ["policies.a.rights", "Send, Listen, Manage"],
        ),
        (
            "[[policies]]\nname = 'a'\nkey = '0123456789abcdef'\nrights = ['All']",
            ["rights[0]", "'All'", "Send, Listen, Manage"],
        ),
        ("[[policies]]\nname = 'a'\nrights = ['Send']", ["policies.a.key", "printable"]),
        ("[[policies]]\nname = 'a'\nkey = '0123456789abcde'\nrights = ['Send']", ["policies.a.key", "at least 16"]),
        (
            "[[policies]]\nname = 'a'\nkey = '0123456789abcdef'\nsecondary_key = 'k'\nrights = ['Send']",
            ["policies.a.secondary_key", "at least 16"],
        ),
        ("[[policies]]\nname = 'a'\nkey = 'SAS_KEY_VALUE'\nrights = ['Send']", ["policies.a.key", "at least 16"]),
        ("[[policies]]\nname = 'a;b'\nkey = '0123456789abcdef'\nrights = ['Send']", ["policies.name"]),
        ("[[policies]]\nname = 'a'\nkeys = 'k'", ["policies[0].keys", "no such setting"]),
        (
            "[[policies]]\nname = 'a'\nkey = '0123456789abcdef'\nrights = ['Send']\n"
            "[[policies]]\nname = 'A'\nkey = '0123456789abcdef'\nrights = ['Send']",
            ["policies", "same name"],
        ),
        ("[limits]\nmax_entities = 0", ["limits.max_entities", "0", "1"]),
        ("[limits]\nmin_lock_duration_s = 400", ["limits.min_lock_duration_s", "300"]),
        ("[limits]\nsize_choices_megabytes = []", ["limits.size_choices_megabytes"]),
        ("[limits]\nidle_timeout_s = nan", ["limits.idle_timeout_s", "number"]),
        ("[limits]\nidle_timeout_s = inf", ["limits.idle_timeout_s", "number"]),
        ("[limits]\ncommit_mode = 'never'", ["limits.commit_mode", "auto, loop, thread"]),
        ("name = ", ["not a TOML file"]),
        ("name = 'a'\nname = 'b'", ["not a TOML file"]),
    ],
)
def test_a_mistake_in_the_file_is_named_with_what_is_allowed(tmp_path: Path, text: str, parts: list[str]) -> None:
    message = refusal(tmp_path, text)
    assert all(part in message for part in parts), message


@pytest.mark.parametrize(
    ("environment", "parts"),
    [
        ({"TANDEMBUS_AMQP_PORT": "x"}, ["TANDEMBUS_AMQP_PORT", "whole number"]),
        ({"TANDEMBUS_LIMITS_MAX_LOCKS": "0"}, ["TANDEMBUS_LIMITS_MAX_LOCKS", "1"]),
    ],
)
def test_a_mistake_in_the_environment_is_named(environment: dict[str, str], parts: list[str]) -> None:
    with pytest.raises(ConfigurationError) as refused:
        load_settings(environment=environment)
    assert all(part in str(refused.value) for part in parts)


def test_a_mistake_in_a_flag_is_named_as_it_is_written() -> None:
    with pytest.raises(ConfigurationError, match="flag --amqp-port: 70000 is above"):
        load_settings(flags={"amqp_port": 70_000})


def test_variables_that_others_make_up_are_left_alone() -> None:
    environment = {
        "TANDEMBUS_PORT": "tcp://10.0.0.1:5672",
        "TANDEMBUS_SERVICE_HOST": "10.0.0.1",
        "TANDEMBUS_AMQP_PORT": "tcp://10.0.0.1:5672",  # of a service `tandembus-amqp`
        "TANDEMBUS_LIMITS_MAX_LOCK": "5",
        "TANDEMBUS_CONNECTION_STRING": "Endpoint=sb://x/",
    }
    assert load_settings(environment=environment) == ServeSettings()


@covers("B2")
@pytest.mark.parametrize("text", ["{}", "\ufeff {}", "", '{"UserConfig": {}}'])
def test_a_json_file_is_taken_for_a_configuration_of_the_emulator(tmp_path: Path, text: str) -> None:
    path = tmp_path / "Config.json"
    path.write_text(text)
    settings = load_settings(path, flags={"amqp_port": 1})
    assert (settings.emulator_config, settings.amqp_port, settings.http_port) == (path, 1, 5300)
    assert settings.limits == Limits(min_duplicate_window_s=5.0)


@covers("B2")
def test_a_configuration_of_the_emulator_can_stand_beside_settings(tmp_path: Path) -> None:
    text = 'emulator_config = "Config.json"\n[limits]\nmin_duplicate_window_s = 30.0\n'
    settings = load_settings(write(tmp_path, text))
    assert settings.emulator_config == Path("Config.json")
    assert settings.limits.min_duplicate_window_s == 30.0


@covers("M15", "F17")
@pytest.mark.parametrize(
    ("given", "host", "expected"),
    [
        ({"emulator_config": Path("Config.json")}, "127.0.0.1", True),
        ({"emulator_config": Path("Config.json")}, "localhost", True),
        ({"emulator_config": Path("Config.json")}, "0.0.0.0", False),
        ({"emulator_config": Path("Config.json"), "open_emulator_key": True}, "0.0.0.0", True),
        ({"emulator": True}, "127.0.0.1", True),
        ({"emulator": True}, "0.0.0.0", False),
        ({"emulator": True, "open_emulator_key": True}, "0.0.0.0", True),
        ({}, "127.0.0.1", False),
    ],
)
def test_the_emulators_key_counts_only_for_an_emulator_and_off_this_machine_only_on_demand(
    given: dict[str, typing.Any], host: str, expected: bool
) -> None:
    settings = ServeSettings(host=host, **given)
    assert settings.accepts_emulator_key is expected
    (root,) = fixed_policies(settings, KEY)
    assert (root.primary_key, root.secondary_key) == (KEY, EMULATOR_KEY if expected else "")


@covers("B2")
def test_the_emulators_variable_moves_the_http_port_unless_a_setting_does() -> None:
    moved = {"EMULATOR_HTTP_PORT": "5301", "TANDEMBUS_EMULATOR": "1"}
    assert load_settings(environment=moved).http_port == 5301
    assert load_settings(environment={**moved, "TANDEMBUS_HTTP_PORT": "5302"}).http_port == 5302
    assert load_settings(environment={"EMULATOR_HTTP_PORT": "5301"}).http_port == 5300
    with pytest.raises(ConfigurationError, match="EMULATOR_HTTP_PORT: 'many' is not a whole number"):
        load_settings(environment={**moved, "EMULATOR_HTTP_PORT": "many"})


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.toml", tmp_path):
        with pytest.raises(ConfigurationError, match=f"{path}: cannot be read"):
            load_settings(path)
    huge = tmp_path / "huge.toml"
    huge.write_bytes(b"#" * 2_000_000)
    with pytest.raises(ConfigurationError, match="larger than"):
        load_settings(huge)


@covers("F17")
def test_keys_show_neither_in_representations_nor_in_complaints(tmp_path: Path) -> None:
    policy = f'[[policies]]\nname = "a"\nkey = "{KEY}"\nrights = ["Send"]\n'
    assert KEY not in repr(load_settings(write(tmp_path, f'key = "{KEY}"\n{policy}')))
    for text in (f'key = ["{KEY}"]', f'key = "{KEY} ;"', policy.replace(f'"{KEY}"', f'["{KEY}"]')):
        assert KEY not in refusal(tmp_path, text)


@given(st.dictionaries(st.sampled_from([one.name for one in dataclasses.fields(ServeSettings)]), st.text(max_size=20)))
def test_any_text_in_the_environment_is_taken_or_refused(values: dict[str, str]) -> None:
    environment = {f"TANDEMBUS_{name.upper()}": text for name, text in values.items()}
    try:
        load_settings(environment=environment)
    except ConfigurationError as error:
        assert "TANDEMBUS_" in str(error) or ":" in str(error)  # noqa: PT017


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("LocalHost", True),
        ("127.8.8.8", True),
        ("0.0.0.0", False),
        ("h", False),
    ],
)
def test_loopback_addresses_are_recognised(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def documented_row(owner: type, one: dataclasses.Field[object]) -> str:
    """One line of the table in the documentation: name, default, range, meaning."""
    default = one.default
    if one.name in ("limits", "policies", "issuers", "rights", "audience"):
        shown = ""
    elif default is None:
        shown = "off" if "off" in str(one.metadata["about"]) else "none"
    elif isinstance(default, tuple):
        shown = ", ".join(str(item) for item in default) or "none"
    else:
        shown = str(default).lower() if isinstance(default, bool) else str(default)
    bounds = ", ".join(one.metadata["choices"]) or " to ".join(
        str(bound) for bound in (one.metadata["minimum"], one.metadata["maximum"]) if bound is not None
    )
    if one.metadata["maximum"] is None and one.metadata["minimum"] is not None:
        bounds += " or more"
    cells = [f"`{one.name}`", f"`{shown}`" if shown else "", bounds, str(one.metadata["about"])]
    return "| " + " | ".join(cells) + " |"


ROWS = [
    pytest.param(documented_row(owner, one), id=f"{owner.__name__}.{one.name}")
    for owner in (ServeSettings, PolicySetting, IssuerSetting, Limits)
    for one in typing.cast("tuple[dataclasses.Field[object], ...]", dataclasses.fields(owner))
]


@pytest.mark.parametrize("row", ROWS)
def test_every_setting_stands_in_the_documentation(row: str) -> None:
    assert row in DOCUMENT.read_text().splitlines(), f"docs/configuration.md needs this line:\n{row}"


def test_the_documentation_names_no_setting_that_is_not_there() -> None:
    rows = {line for line in DOCUMENT.read_text().splitlines() if line.startswith("| `")}
    assert rows <= {str(one.values[0]) for one in ROWS}


def test_the_example_in_the_documentation_works(tmp_path: Path) -> None:
    example = DOCUMENT.read_text().split("```toml\n")[1].split("```")[0]
    assert load_settings(write(tmp_path, example)) != ServeSettings()


@covers("P1")
def test_settings_handed_over_to_another_process_are_the_same_settings(tmp_path: Path) -> None:
    example = DOCUMENT.read_text().split("```toml\n")[1].split("```")[0]
    flags = {"data": tmp_path, "brokers": 3, "stores": 5, "front_ends": 2, "restart_delay_s": 1.5, "key": KEY}
    settings = load_settings(write(tmp_path, example), {}, flags)
    handed_over = json.loads(json.dumps(settings_document(settings)))
    assert settings_from_document(handed_over) == settings


@covers("P1")
def test_several_front_ends_need_brokers_of_their_own() -> None:
    with pytest.raises(ConfigurationError, match="brokers must be 1 or more"):
        load_settings(flags={"front_ends": 2})
    assert load_settings(flags={"front_ends": 2, "brokers": 1}).front_ends == 2


@pytest.mark.parametrize(
    ("flag", "value", "told"),
    [
        ("brokers", -1, "flag --brokers: -1 is below the least allowed value, 0"),
        ("stores", 0, "flag --stores: 0 is below the least allowed value, 1"),
        ("front_ends", 0, "flag --front-ends: 0 is below the least allowed value, 1"),
        ("restart_delay_s", -0.1, "flag --restart-delay: -0.1 is below the least allowed value, 0.0"),
        ("heartbeat_timeout_s", 0.1, "flag --heartbeat-timeout: 0.1 is below the least allowed value, 0.5"),
    ],
)
@covers("P1")
def test_a_topology_that_cannot_be_is_told_by_its_flag(flag: str, value: float, told: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        load_settings(flags={flag: value})
    assert str(refused.value) == told
