"""Settings: parsing, validation and display of environment variables."""

from ipaddress import ip_address
from pathlib import Path

import pytest

from aaiclick.errors import SettingsError
from aaiclick.server_addresses import (
    ClickHouseEndpoint,
    PostgresEndpoint,
    RuntimeEndpoint,
    parse_clickhouse_url,
    parse_postgres_url,
)
from aaiclick.settings import Settings, describe_settings, get_logs_dir, load_settings, variable_names


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch):
    for name in variable_names():
        monkeypatch.delenv(name, raising=False)


def settings_with(monkeypatch, **variables: str) -> Settings:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return load_settings()


def test_defaults_are_the_documented_ones():
    settings = load_settings()
    assert settings.home == Path("~/.aaiclick").expanduser()
    assert settings.postgres is None
    assert settings.clickhouse is None
    assert settings.worker_heartbeat_interval_seconds == 30
    assert settings.worker_task_timeout_seconds == 3600
    assert settings.worker_max_retries == 3
    assert settings.job_default_timeout_seconds == 86400


def test_settings_are_frozen():
    with pytest.raises(ValueError, match="frozen"):
        load_settings().worker_max_retries = 5


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("POSTGRES_PORT", "none", "valid integer"),
        ("POSTGRES_PORT", "70000", "less than or equal to 65535"),
        ("WORKER_MAX_RETRIES", "-1", "greater than or equal to 0"),
        ("WORKER_TASK_TIMEOUT", "0", "greater than 0"),
        ("WORKER_HEARTBEAT_INTERVAL", "soon", "valid number"),
        ("AAICLICK_LOCAL_LINGER", "-3", "greater than or equal to 0"),
        ("AAICLICK_MACHINE_IDS", "5", None),
        ("AAICLICK_MACHINE_IDS", "9-3", "the first not above the last"),
        ("AAICLICK_MACHINE_IDS", "0-1024", "between 0 and 1023"),
        ("AAICLICK_MACHINE_IDS", "a-b", "write FIRST-LAST"),
        ("AAICLICK_API_KEY", "schlüssel", "printable ASCII characters"),
        ("AAICLICK_TASK_MODULES", "my app", "'my app' is not the name of a module"),
        ("AAICLICK_DATABASE_URL", "mysql://x", "write postgresql://user:password@host:5432/database"),
        ("AAICLICK_DATABASE_URL", "postgresql://", "names no host"),
        ("AAICLICK_DATABASE_URL", "postgresql://u:hunter2@h:port/d", "port is not a number"),
        ("AAICLICK_CLICKHOUSE_URL", "ftp://x", "write http://user:password@host:8123/database"),
        ("AAICLICK_CLICKHOUSE_URL", "http://u:hunter2@:99999/d", "names no host"),
    ],
)
def test_error_names_an_invalid_variable(monkeypatch, name, value, message):
    if message is None:
        assert settings_with(monkeypatch, **{name: value}).machine_ids == (5, 5)
        return
    with pytest.raises(SettingsError) as caught:
        settings_with(monkeypatch, **{name: value})
    assert str(caught.value).startswith(f"{name}: ")
    assert message in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert "aaiclick config" in caught.value.remedy


def test_api_key_has_no_line_break(monkeypatch):
    key = settings_with(monkeypatch, AAICLICK_API_KEY="aai_key\n").api_key
    assert key is not None
    assert key.get_secret_value() == "aai_key"


def test_several_bad_variables_are_reported_together(monkeypatch):
    with pytest.raises(SettingsError, match=r"(?s)POSTGRES_PORT.*WORKER_MAX_RETRIES"):
        settings_with(monkeypatch, POSTGRES_PORT="x", WORKER_MAX_RETRIES="y")


def test_a_timeout_shorter_than_the_heartbeat_is_refused(monkeypatch):
    with pytest.raises(SettingsError, match="WORKER_TIMEOUT must be longer than WORKER_HEARTBEAT_INTERVAL"):
        settings_with(monkeypatch, WORKER_TIMEOUT="10")


def test_task_modules_are_a_list(monkeypatch):
    assert settings_with(monkeypatch, AAICLICK_TASK_MODULES="a.b, c").task_modules == ("a.b", "c")


def test_an_empty_variable_counts_as_unset(monkeypatch):
    assert settings_with(monkeypatch, POSTGRES_PORT="", AAICLICK_DATABASE_URL="").postgres is None


def test_postgres_in_parts(monkeypatch):
    settings = settings_with(monkeypatch, POSTGRES_HOST="db", POSTGRES_PASSWORD="p@ss", POSTGRES_DB="d")
    assert settings.postgres == PostgresEndpoint("db", 5432, "aaiclick", "d", "p@ss")


def test_the_url_wins_over_the_parts(monkeypatch):
    settings = settings_with(monkeypatch, POSTGRES_HOST="db", AAICLICK_DATABASE_URL="postgresql://u@other/d")
    assert settings.postgres == PostgresEndpoint("other", 5432, "u", "d")


@pytest.mark.parametrize(
    "endpoint",
    [
        PostgresEndpoint("db", 5433, "u", "d", "p@:/? #%"),
        PostgresEndpoint("::1", 5432, "u", "d", "x", (("sslmode", "require"),)),
        PostgresEndpoint("/tmp/with space/run", 5432, "u s", "d b", "pa ss"),
        PostgresEndpoint("db", 5432, "u", "d"),
    ],
)
def test_postgres_endpoint_round_trips_through_its_url(endpoint):
    assert parse_postgres_url(endpoint.dsn) == endpoint


@pytest.mark.parametrize(
    "endpoint",
    [
        ClickHouseEndpoint("ch", 8123, "u", "d", "p@:/? #%"),
        ClickHouseEndpoint("::1", 8443, "u", "d b", "x", secure=True),
        ClickHouseEndpoint("127.0.0.1", 9999, "u", "d", "x", path="s3cret"),
        ClickHouseEndpoint(
            "n1", 1, "u", "d", "a b", cluster="c d", others=(ClickHouseEndpoint("n2", 2, "v", "d", "y", path="z"),)
        ),
    ],
)
def test_clickhouse_endpoint_round_trips_through_its_url(endpoint):
    assert parse_clickhouse_url(endpoint.url) == endpoint


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://a/d?cluster=c", "a cluster is several URLs"),
        ("http://a/d http://b/d", "a cluster is several URLs"),
        ("http://a/d?cluster=c http://b/e", "one database name"),
        ("http://a/d?cluster=c http://b/d?cluster=x", "one cluster name"),
        (" ", "write http://"),
    ],
)
def test_incomplete_cluster_url_is_refused(url, message):
    with pytest.raises(ValueError, match=message):
        parse_clickhouse_url(url)


def test_with_database_applies_to_all_nodes():
    endpoint = parse_clickhouse_url("http://a/d?cluster=c http://b/d").with_database("e")
    assert [endpoint.database, *(node.database for node in endpoint.others)] == ["e", "e"]


def test_defaults_of_a_short_url():
    assert parse_clickhouse_url("http://ch") == ClickHouseEndpoint("ch", 8123, "default", "default")
    assert parse_clickhouse_url("https://ch").port == 8443
    assert parse_postgres_url("postgresql://u@h").database == "u"


@pytest.mark.parametrize(
    "endpoint", [PostgresEndpoint("h", 1, "u", "d", "hunter2"), ClickHouseEndpoint("h", 1, "u", "d", "hunter2")]
)
def test_endpoint_text_hides_the_password(endpoint):
    assert "hunter2" not in str(endpoint)
    assert "hunter2" not in repr(endpoint)


def test_describe_settings_hides_secrets_and_names_sources(monkeypatch):
    settings = settings_with(
        monkeypatch,
        AAICLICK_DATABASE_URL="postgresql://u:hunter2@h/d",
        POSTGRES_PASSWORD="hunter2",
        WORKER_MAX_RETRIES="7",
    )
    lines = {line.name: line for line in describe_settings(settings)}
    assert set(lines) == set(variable_names())
    assert "hunter2" not in str(lines)
    assert lines["WORKER_MAX_RETRIES"].value == "7"
    assert lines["WORKER_MAX_RETRIES"].source == "environment"
    assert lines["WORKER_TIMEOUT"].source == "default"
    assert lines["POSTGRES_PASSWORD"].source == "environment (unused: AAICLICK_DATABASE_URL is set)"


def test_log_directory_is_configurable(monkeypatch, tmp_path):
    settings = settings_with(monkeypatch, AAICLICK_LOG_DIR=str(tmp_path / "a" / "b"))
    assert get_logs_dir(settings) == tmp_path / "a" / "b"
    assert (tmp_path / "a" / "b").is_dir()


def test_log_directory_is_below_home_by_default(monkeypatch, tmp_path):
    settings = settings_with(monkeypatch, AAICLICK_HOME=str(tmp_path))
    assert get_logs_dir(settings) == tmp_path / "logs" / "tasks"
    assert (tmp_path / "logs" / "tasks").is_dir()


def test_unusable_log_directory_is_refused(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    settings = settings_with(monkeypatch, AAICLICK_LOG_DIR=str(tmp_path / "file" / "logs"))
    with pytest.raises(SettingsError, match=r"AAICLICK_LOG_DIR: task logs cannot be stored in .*: Not a directory"):
        get_logs_dir(settings)


def test_runtimes_and_parquet_prefixes_are_parsed_and_shown(monkeypatch):
    settings = settings_with(
        monkeypatch,
        AAICLICK_RUNTIMES="ecs_udf=https://sqs.eu-west-1.amazonaws.com/1/q, lambda@acme=crunch",
        AAICLICK_PARQUET_PREFIXES="/srv/lake/,acme=s3://lake/a=b/",
    )
    assert settings.runtimes == (
        RuntimeEndpoint("ecs_udf", "https://sqs.eu-west-1.amazonaws.com/1/q"),
        RuntimeEndpoint("lambda", "crunch", "acme"),
    )
    assert settings.parquet_prefixes == (("default", "/srv/lake/"), ("acme", "s3://lake/a=b/"))
    shown = {setting.name: setting.value for setting in describe_settings(settings)}
    assert shown["AAICLICK_RUNTIMES"].endswith(",lambda@acme=crunch")
    assert shown["AAICLICK_PARQUET_PREFIXES"] == "default=/srv/lake/,acme=s3://lake/a=b/"


@pytest.mark.parametrize(
    ("hosts", "host", "address", "reached"),
    [
        ("", "127.0.0.1", "127.0.0.1", False),
        ("10.0.0.0/8", "somewhere", "10.1.2.3", True),
        ("10.0.0.0/8", "somewhere", "169.254.169.254", False),
        ("127.0.0.1, fd00::/8", "127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1, fd00::/8", "::1", "::1", False),
        ("127.0.0.1, fd00::/8", "six", "fd00::1", True),
        ("Intranet.example", "INTRANET.example.", "10.1.2.3", True),
        ("intranet.example", "evil.intranet.example", "10.1.2.3", False),
    ],
)
def test_private_hosts_allow_the_named_hosts_only(monkeypatch, hosts, host, address, reached):
    settings = settings_with(monkeypatch, AAICLICK_PRIVATE_HOSTS=hosts)
    assert settings.private_hosts.allow_host(host, ip_address(address)) == reached
    shown = {setting.name: setting.value for setting in describe_settings(settings)}["AAICLICK_PRIVATE_HOSTS"]
    assert settings_with(monkeypatch, AAICLICK_PRIVATE_HOSTS=shown) == settings


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("AAICLICK_RUNTIMES", "cloud=x", "is not ecs_NAME="),
        ("AAICLICK_RUNTIMES", "lambda=", "is not ecs_NAME="),
        ("AAICLICK_RUNTIMES", "lambda@=f", "is not ecs_NAME="),
        ("AAICLICK_RUNTIMES", "ecs_udf=queue", "needs the URL of an SQS queue"),
        ("AAICLICK_RUNTIMES", "lambda=a,lambda=b", "named twice"),
        ("AAICLICK_PRIVATE_HOSTS", "10.0.0.1/8", "'10.0.0.1/8' is not a host, an address or a network"),
        ("AAICLICK_PRIVATE_HOSTS", "http://inside", "is not a host, an address or a network"),
        ("AAICLICK_PARQUET_PREFIXES", "lake/", "begin and end it so"),
        ("AAICLICK_PARQUET_PREFIXES", "s3://lake", "begin and end it so"),
    ],
)
def test_invalid_runtimes_and_prefixes_are_reported(monkeypatch, name, value, message):
    with pytest.raises(SettingsError, match=message):
        settings_with(monkeypatch, **{name: value})
