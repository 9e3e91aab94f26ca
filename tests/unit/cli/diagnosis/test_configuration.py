"""Variables, modes of files, and certificates, real ones."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tandembus.cli.diagnosis.configuration import examine, unusable, usable
from tandembus.cli.diagnosis.finding import Finding, Level
from tandembus.config import ConfigurationError, PolicySetting, ServeSettings
from tandembus.security.tls import ensure_certificate
from tests.unit.cli.diagnosis.told import about, assert_ok, assert_told

NOW = datetime(2030, 6, 1, tzinfo=timezone.utc)
DAY = timedelta(days=1)
MANY_DAYS = 400 * DAY
PARTNER = "Endpoint=sb://other/;SharedAccessKeyName=one;SharedAccessKey=two"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings name a folder of the current one by default: what happens to be there is none of these tests'."""
    monkeypatch.chdir(tmp_path)


def looked_at(
    settings: ServeSettings, config: Path | None = None, environment: Mapping[str, str] | None = None
) -> list[Finding]:
    return list(examine(settings, config, environment or {}, NOW.timestamp()))


def told_of_variable(data: Path, variable: str) -> list[Finding]:
    return [one for one in looked_at(ServeSettings(data=data), None, {variable: "7"}) if one.subject == "environment"]


def secret_file(path: Path, mode: int) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("secret")
    path.chmod(mode)
    return path


def private_data(tmp_path: Path) -> Path:
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    return data


def pair(folder: Path, begins: datetime, ends: datetime, passphrase: bytes | None = None) -> tuple[Path, Path]:
    """A certificate and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "bus.example.com")])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(begins).not_valid_after(ends)
    pem = serialization.Encoding.PEM
    hiding = serialization.BestAvailableEncryption(passphrase) if passphrase else serialization.NoEncryption()
    certificate_path, key_path = folder / "bus.pem", folder / "bus.key"
    certificate_path.write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(pem))
    key_path.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, hiding))
    key_path.chmod(0o600)
    return certificate_path, key_path


def given(tmp_path: Path, certificate: Path, key: Path) -> Finding:
    settings = ServeSettings(data=tmp_path / "data", tls_certificate=certificate, tls_private_key=key)
    return about("certificate", looked_at(settings))


def test_settings_that_cannot_be_used_are_a_problem() -> None:
    finding = unusable(ConfigurationError("bus.toml: colour: no such setting"))
    assert_told(finding, Level.PROBLEM, "settings", "colour: no such setting", "docs/configuration.md")


@pytest.mark.parametrize(
    ("config", "environment", "text"),
    [
        (None, {}, "defaults and flags"),
        (Path("bus.toml"), {}, "from the file bus.toml"),
        (
            None,
            {"TANDEMBUS_LIMITS_MAX_LOCKS": "7", "TANDEMBUS_HOST": "h"},
            "TANDEMBUS_HOST, TANDEMBUS_LIMITS_MAX_LOCKS",
        ),
        (None, {"TANDEMBUS_POLICIES": "[]", "TANDEMBUS_LIMITS": "{}", "TANDEMBUS_PORT": "7"}, "defaults and flags"),
    ],
)
def test_it_is_told_where_settings_come_from(config: Path | None, environment: dict[str, str], text: str) -> None:
    assert_ok(usable(config, environment), "settings", text)


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("TANDEMBUS_AMQP_PROT", "TANDEMBUS_AMQP_PORT"),
        ("TANDEMBUS_HTTPPORT", "TANDEMBUS_HTTP_PORT"),
        ("TANDEMBUS_BROKER", "TANDEMBUS_BROKERS"),
        ("TANDEMBUS_HSOT", "TANDEMBUS_HOST"),
        ("TANDEMBUS_amqp_port", "TANDEMBUS_AMQP_PORT"),
        ("TANDEMBUS_CONECTION_STRING", "TANDEMBUS_CONNECTION_STRING"),
    ],
)
def test_a_variable_that_looks_like_a_slip_is_told(tmp_path: Path, variable: str, meant: str) -> None:
    (finding,) = told_of_variable(tmp_path, variable)
    assert_told(finding, Level.WARNING, "environment", f"{variable} means nothing", f"Is {meant} meant?")


@pytest.mark.parametrize("variable", ["TANDEMBUS_POLICIES", "TANDEMBUS_LIMITS"])
def test_a_variable_in_place_of_a_table_is_told(tmp_path: Path, variable: str) -> None:
    (finding,) = told_of_variable(tmp_path, variable)
    assert_told(finding, Level.WARNING, "environment", f"{variable} means nothing", "as a table: --config")


@pytest.mark.parametrize(
    "name",
    [
        "AMQP_PORT", "CONNECTION_STRING", "LIMITS_MAX_LOCKS",
        # Of container platforms, for a service of this name.
        "PORT", "SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_AMQP", "PORT_5672_TCP", "PORT_5672_TCP_ADDR",
        "PORT_5672_TCP_PORT", "PORT_5672_TCP_PROTO",
        # Of guides and tools.
        "PRIMARY", "SECONDARY", "SPARK_MASTER", "COMPILE",
    ],
)  # fmt: skip
def test_a_variable_that_means_something_to_somebody_is_left_alone(tmp_path: Path, name: str) -> None:
    assert told_of_variable(tmp_path, f"TANDEMBUS_{name}") == []
    assert told_of_variable(tmp_path, f"OTHER_{name}") == []


@pytest.mark.parametrize("name", ["key", "install.key", "tls/ca.key", "tls/server.key"])
@pytest.mark.parametrize("mode", [0o644, 0o604])
def test_a_key_that_others_can_read_is_a_problem(tmp_path: Path, name: str, mode: int) -> None:
    path = secret_file(private_data(tmp_path) / name, mode)
    finding = about("keys", looked_at(ServeSettings(data=tmp_path / "data")))
    assert_told(finding, Level.PROBLEM, "keys", f"{path} can be read by others (mode {mode:o})", f"`chmod 600 {path}`")


def test_a_key_that_its_group_can_read_is_told(tmp_path: Path) -> None:
    path = secret_file(private_data(tmp_path) / "key", 0o640)
    finding = about("keys", looked_at(ServeSettings(data=tmp_path / "data")))
    assert_told(finding, Level.WARNING, "keys", "open to its group (mode 640)", f"`chmod 600 {path}`")


def test_a_command_that_is_advised_can_be_pasted(tmp_path: Path) -> None:
    data = tmp_path / "my data"
    data.mkdir(mode=0o755)
    secret_file(data / "key", 0o644)
    findings = looked_at(ServeSettings(data=data))
    assert f"`chmod 600 '{data}/key'`" in about("keys", findings).advice
    assert f"`chmod 700 '{data}'`" in about("data folder", findings).advice


@pytest.mark.parametrize("mode", [0o755, 0o750])
def test_a_data_folder_that_is_open_to_others_is_told(tmp_path: Path, mode: int) -> None:
    data = private_data(tmp_path)
    data.chmod(mode)
    finding = about("data folder", looked_at(ServeSettings(data=data)))
    assert_told(finding, Level.WARNING, "data folder", "is open to others", f"`chmod 700 {data}`")


def test_keys_of_their_owner_alone_are_fine(tmp_path: Path) -> None:
    data = private_data(tmp_path)
    secret_file(data / "key", 0o600)
    assert_ok(about("keys", looked_at(ServeSettings(data=data))), "keys", "1 file, open to the owner only")
    secret_file(data / "install.key", 0o400)
    findings = looked_at(ServeSettings(data=data))
    assert_ok(about("keys", findings), "keys", "2 files, open to the owner only")
    assert "data folder" not in [one.subject for one in findings]


@pytest.mark.parametrize(
    "settings",
    [
        ServeSettings(key="k"),
        ServeSettings(partner=PARTNER),
        ServeSettings(policies=(PolicySetting("one", "k", None, ("Send",)),)),
    ],
)
def test_a_file_of_settings_with_secrets_that_others_can_read_is_a_problem(
    tmp_path: Path, settings: ServeSettings
) -> None:
    config = secret_file(tmp_path / "bus.toml", 0o644)
    finding = about("keys", looked_at(settings, config))
    assert_told(finding, Level.PROBLEM, "keys", f"{config} can be read by others", f"`chmod 600 {config}`")


@pytest.mark.parametrize(
    ("settings", "environment"),
    [
        (ServeSettings(), {}),
        (ServeSettings(key="k"), {"TANDEMBUS_KEY": "k"}),
        (ServeSettings(partner=PARTNER), {"TANDEMBUS_PARTNER": PARTNER}),
    ],
)
def test_a_file_of_settings_without_secrets_may_be_read_by_everybody(
    tmp_path: Path, settings: ServeSettings, environment: dict[str, str]
) -> None:
    config = secret_file(tmp_path / "bus.toml", 0o644)
    assert "keys" not in [one.subject for one in looked_at(settings, config, environment)]


def test_a_private_key_that_was_given_is_looked_at_like_the_others(tmp_path: Path) -> None:
    certificate, key = pair(tmp_path, NOW - DAY, NOW + MANY_DAYS)
    key.chmod(0o644)
    settings = ServeSettings(data=tmp_path / "data", tls_certificate=certificate, tls_private_key=key)
    assert_told(about("keys", looked_at(settings)), Level.PROBLEM, "keys", str(key), f"`chmod 600 {key}`")


def test_a_certificate_that_was_given_and_fits_its_key_is_fine(tmp_path: Path) -> None:
    assert_ok(given(tmp_path, *pair(tmp_path, NOW - DAY, NOW + MANY_DAYS)), "certificate", "valid until 2031-07-06")


@pytest.mark.parametrize(
    ("begins", "ends"),
    [(NOW - 90 * DAY, NOW - DAY), (NOW - 90 * DAY, NOW), (NOW + DAY, NOW + 90 * DAY)],
)
def test_a_certificate_that_is_not_valid_now_is_a_problem(tmp_path: Path, begins: datetime, ends: datetime) -> None:
    finding = given(tmp_path, *pair(tmp_path, begins, ends))
    text = f"not valid now, but from {begins:%Y-%m-%d} to {ends:%Y-%m-%d}"
    assert_told(finding, Level.PROBLEM, "certificate", text, "Put a new one in its place")


def test_a_certificate_that_ends_soon_is_told(tmp_path: Path) -> None:
    finding = given(tmp_path, *pair(tmp_path, NOW - 370 * DAY, NOW + 29 * DAY))
    assert_told(finding, Level.WARNING, "certificate", "valid until 2030-06-30", "restart the namespace")
    assert_ok(given(tmp_path, *pair(tmp_path, NOW - 370 * DAY, NOW + 30 * DAY)), "certificate")


def test_a_certificate_that_lives_shortly_is_told_of_in_the_last_quarter_of_its_life(tmp_path: Path) -> None:
    assert_ok(given(tmp_path, *pair(tmp_path, NOW - 5 * DAY, NOW + 2 * DAY)), "certificate")
    finding = given(tmp_path, *pair(tmp_path, NOW - 6 * DAY, NOW + DAY))
    assert_told(finding, Level.WARNING, "certificate", "valid until 2030-06-02", "Put a new one in its place")


def test_a_certificate_and_the_key_of_another_are_a_problem(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    certificate, _ = pair(tmp_path, NOW - DAY, NOW + MANY_DAYS)
    _, key = pair(tmp_path / "other", NOW - DAY, NOW + MANY_DAYS)
    finding = given(tmp_path, certificate, key)
    assert_told(finding, Level.PROBLEM, "certificate", "cannot be used together", "the key that belongs to it")


@pytest.mark.parametrize("missing", ["bus.pem", "bus.key"])
def test_a_certificate_or_key_that_is_missing_is_a_problem(tmp_path: Path, missing: str) -> None:
    certificate, key = pair(tmp_path, NOW - DAY, NOW + MANY_DAYS)
    (tmp_path / missing).unlink()
    finding = given(tmp_path, certificate, key)
    assert_told(finding, Level.PROBLEM, "certificate", "No such file", "Give the certificate and the key")


def test_a_key_with_a_passphrase_is_a_problem_and_nobody_is_asked_for_it(tmp_path: Path) -> None:
    certificate, key = pair(tmp_path, NOW - DAY, NOW + MANY_DAYS, passphrase=b"sesame")
    finding = given(tmp_path, certificate, key)
    assert_told(finding, Level.PROBLEM, "certificate", f"{key} has a passphrase", f"`openssl pkey -in {key}`")


def test_before_the_first_start_there_are_no_certificates_and_that_is_fine(tmp_path: Path) -> None:
    findings = looked_at(ServeSettings(data=tmp_path / "data"))
    for name in ("authority", "certificate"):
        assert_ok(about(name, findings), name, "the first start makes one")


def test_certificates_of_the_namespace_itself_are_renewed_by_a_restart(tmp_path: Path) -> None:
    data = private_data(tmp_path)
    ensure_certificate(data / "tls", ["localhost"], (NOW - 380 * DAY).timestamp())
    findings = looked_at(ServeSettings(data=data))
    finding = about("certificate", findings)
    assert_told(finding, Level.WARNING, "certificate", "valid until 2030-06-18", "A restart of the namespace")
    assert_ok(about("authority", findings), "authority", "valid until 2039")
    assert_ok(about("keys", findings), "keys", "2 files")


def test_an_authority_at_its_end_is_a_problem_of_the_clients_too(tmp_path: Path) -> None:
    data = private_data(tmp_path)
    ensure_certificate(data / "tls", ["localhost"], (NOW - 3_660 * DAY).timestamp())
    finding = about("authority", looked_at(ServeSettings(data=data)))
    assert_told(finding, Level.PROBLEM, "authority", "not valid now", "clients have to be told of it")


@pytest.mark.parametrize(
    "content", [b"", b"\xff\x00", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
def test_a_file_that_is_no_certificate_is_a_problem(tmp_path: Path, content: bytes) -> None:
    data = private_data(tmp_path)
    (data / "tls").mkdir()
    (data / "tls" / "server.pem").write_bytes(content)
    finding = about("certificate", looked_at(ServeSettings(data=data)))
    assert_told(finding, Level.PROBLEM, "certificate", "server.pem is no certificate", "A restart of the namespace")
