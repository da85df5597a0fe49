"""Settings: one frozen, typed object, read from the environment and validated once.

`get_settings()` returns it. Addresses of servers are *endpoints* (`aaiclick.server_addresses`).
"""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from aaiclick.errors import SettingsError
from aaiclick.server_addresses import (
    ClickHouseEndpoint,
    MappedSecret,
    PostgresEndpoint,
    PrivateHosts,
    RuntimeEndpoint,
    parse_clickhouse_url,
    parse_postgres_url,
    parse_private_hosts,
    parse_runtime,
    parse_secret_keys,
    parse_secrets_map,
)

OTHER_VARIABLES = ("AAICLICK_TEST_HOME", "AAICLICK_FAULTS", "AAICLICK_FAULT_MARKS")
"""Read by `aaiclick.testing` and `aaiclick.failpoints`, which do not import this module."""

OIDC_ALGORITHMS = {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}


Seconds = Annotated[float, Field(gt=0, le=100 * 365 * 86400, allow_inf_nan=False)]
"""Finite, since PostgreSQL adds it to timestamps and has no infinite interval before version 17."""


def _variable(name: str, default: Any, help_text: str, **constraints: Any) -> Any:
    return Field(default=default, validation_alias=name, description=help_text, **constraints)


class Settings(BaseSettings):
    """All environment variables of aaiclick."""

    model_config = SettingsConfigDict(
        frozen=True, extra="ignore", case_sensitive=True, env_ignore_empty=True, hide_input_in_errors=True
    )

    home: Path = _variable("AAICLICK_HOME", Path("~/.aaiclick"), "State of the embedded stack")
    database_url: SecretStr | None = _variable(
        "AAICLICK_DATABASE_URL",
        None,
        "PostgreSQL server instead of the embedded one: postgresql://user:password@host/db",
    )
    postgres_host: str | None = _variable(
        "POSTGRES_HOST", None, "PostgreSQL server instead of the embedded one, in parts (AAICLICK_DATABASE_URL wins)"
    )
    postgres_port: int = _variable("POSTGRES_PORT", 5432, "Port, with POSTGRES_HOST", ge=1, le=65535)
    postgres_user: str = _variable("POSTGRES_USER", "aaiclick", "User, with POSTGRES_HOST")
    postgres_password: SecretStr | None = _variable("POSTGRES_PASSWORD", None, "Password, with POSTGRES_HOST")
    postgres_db: str = _variable("POSTGRES_DB", "aaiclick", "Database, with POSTGRES_HOST")
    clickhouse_url: SecretStr | None = _variable(
        "AAICLICK_CLICKHOUSE_URL",
        None,
        "ClickHouse server instead of the embedded one: http://user:password@host:8123/db (nodes of a cluster: "
        "…/db?cluster=NAME, then the others after spaces)",
    )
    debug: bool = _variable("AAICLICK_DEBUG", False, "Show where an unexpected error happened")
    local_linger_seconds: float = _variable(
        "AAICLICK_LOCAL_LINGER", 60.0, "Seconds that the embedded stack runs after its last use", ge=0, le=86400
    )
    machine_ids: Annotated[tuple[int, int], NoDecode] = _variable(
        "AAICLICK_MACHINE_IDS", (0, 1023), "Snowflake machine ids this host may lease, as FIRST-LAST"
    )
    task_modules: Annotated[tuple[str, ...], NoDecode] = _variable(
        "AAICLICK_TASK_MODULES",
        (),
        "The only modules with functions that may be tasks, with commas [if there is one organisation, those below the "
        "worker's directory]",
    )
    log_dir: Path | None = _variable("AAICLICK_LOG_DIR", None, "Task logs [logs/tasks in AAICLICK_HOME]")
    log_format: Literal["text", "json"] = _variable(
        "AAICLICK_LOG_FORMAT",
        "text",
        "json: workers write a line for each attempt and log record; servers always do",
    )
    otel: bool | None = _variable(
        "AAICLICK_OTEL", None, "Send OpenTelemetry traces [if OTEL_EXPORTER_OTLP_ENDPOINT is set]"
    )
    worker_heartbeat_interval_seconds: Seconds = _variable(
        "WORKER_HEARTBEAT_INTERVAL", 30.0, "Seconds between a worker's heartbeats"
    )
    worker_timeout_seconds: Seconds = _variable(
        "WORKER_TIMEOUT", 90.0, "Seconds without a heartbeat after which a worker counts as dead"
    )
    worker_task_timeout_seconds: Seconds = _variable(
        "WORKER_TASK_TIMEOUT", 3600.0, "Default time limit of a task in seconds"
    )
    worker_max_retries: int = _variable("WORKER_MAX_RETRIES", 3, "Default number of retries of a task", ge=0, le=1000)
    job_default_timeout_seconds: Seconds = _variable(
        "JOB_DEFAULT_TIMEOUT", 86400.0, "Default time limit of a job in seconds"
    )
    retention_seconds: Seconds = _variable(
        "AAICLICK_RETENTION", 30 * 86400.0, "Seconds that finished jobs and tasks, and logs of tasks, are kept"
    )
    incident_quiet_seconds: float = _variable(
        "AAICLICK_INCIDENT_QUIET",
        60.0,
        "Seconds without another failure before a recovered incident is closed",
        ge=0,
        le=86400,
    )
    server_host: str = _variable("AAICLICK_SERVER_HOST", "127.0.0.1", "Address that the HTTP server listens at")
    server_port: int = _variable("AAICLICK_SERVER_PORT", 8740, "Port that the HTTP server listens at", ge=0, le=65535)
    server_body_bytes: int = _variable(
        "AAICLICK_SERVER_BODY_BYTES", 8_000_000, "Largest request body that the HTTP server accepts", ge=1_000
    )
    server_statement_seconds: Seconds = _variable(
        "AAICLICK_SERVER_STATEMENT_SECONDS", 30.0, "Time limit of a request's statements in PostgreSQL"
    )
    mcp_changes_per_hour: int = _variable(
        "AAICLICK_MCP_CHANGES_PER_HOUR",
        0,
        "Changes per hour and API key that AI assistants may confirm at /mcp [0: they read only]",
        ge=0,
    )
    server_public_url: str | None = _variable(
        "AAICLICK_SERVER_PUBLIC_URL", None, "URL of the HTTP server for browsers [the address of the request]"
    )
    server: str | None = _variable(
        "AAICLICK_SERVER", None, "URL of a server that commands use instead of the databases"
    )
    api_key: SecretStr | None = _variable("AAICLICK_API_KEY", None, "API key of commands for AAICLICK_SERVER")
    oidc_issuer: str | None = _variable(
        "AAICLICK_OIDC_ISSUER", None, "OIDC issuer of the tokens that the server accepts"
    )
    oidc_audience: str | None = _variable("AAICLICK_OIDC_AUDIENCE", None, "Required audience of OIDC tokens")
    oidc_jwks_url: str | None = _variable("AAICLICK_OIDC_JWKS_URL", None, "URL of the OIDC keys [by discovery]")
    oidc_client_id: str | None = _variable(
        "AAICLICK_OIDC_CLIENT_ID", None, "OIDC client id, for signing in to the web UI"
    )
    oidc_client_secret: SecretStr | None = _variable(
        "AAICLICK_OIDC_CLIENT_SECRET", None, "OIDC client secret, if the client has one"
    )
    oidc_algorithms: Annotated[tuple[str, ...], NoDecode] = _variable(
        "AAICLICK_OIDC_ALGORITHMS", ("RS256", "ES256"), "Allowed signature algorithms of OIDC tokens, with commas"
    )

    runtimes: Annotated[tuple[RuntimeEndpoint, ...], NoDecode] = _variable(
        "AAICLICK_RUNTIMES", (),
        "Where tasks of other runtimes go, with commas: ecs_NAME=SQS_QUEUE_URL, lambda=FUNCTION (of one organisation: "
        "ecs_NAME@ORG=…)",
    )  # fmt: skip
    parquet_prefixes: Annotated[tuple[tuple[str, str], ...], NoDecode] = _variable(
        "AAICLICK_PARQUET_PREFIXES", (),
        "Where datasets may be kept as Parquet, with commas: s3://bucket/prefix/ or /directory/ (of another "
        "organisation: ORG=s3://…)",
    )  # fmt: skip
    private_hosts: Annotated[PrivateHosts, NoDecode] = _variable(
        "AAICLICK_PRIVATE_HOSTS", PrivateHosts(),
        "Servers without a public address that every organisation's DAGs may connect to, with commas: hosts, addresses "
        "or networks (10.0.0.0/8)",
    )  # fmt: skip
    secrets_key: SecretStr | None = _variable(
        "AAICLICK_SECRETS_KEY", None,
        "Keys that encrypt organisations' secrets, newest first, with commas ('aaiclick secrets key' makes one) "
        "[secrets.key in AAICLICK_HOME]",
    )  # fmt: skip
    secrets_map: Annotated[tuple[MappedSecret, ...], NoDecode] = _variable(
        "AAICLICK_SECRETS_MAP", (),
        'Secrets that are variables or files of this machine, as JSON: {"ORG/NAME": "env:VARIABLE" or "file:/path"}',
    )  # fmt: skip
    runtime_resend_seconds: Seconds = _variable(
        "AAICLICK_RUNTIME_RESEND", 60.0, "Seconds after which an unclaimed task is sent to its runtime again"
    )
    max_literal_bytes: int = _variable(
        "AAICLICK_MAX_LITERAL_BYTES",
        65_536,
        "Largest result that is stored with its task instead of a ClickHouse table; -1 stores none",
        ge=-1,
    )
    job_max_tasks: int = _variable(
        "AAICLICK_JOB_MAX_TASKS", 5_000_000, "Maximum number of tasks of a job; a job that exceeds it fails", ge=1
    )
    job_max_depth: int = _variable(
        "AAICLICK_JOB_MAX_DEPTH", 1_000, "Maximum nesting depth of tasks that add tasks", ge=0
    )

    @field_validator("home", "log_dir")
    @classmethod
    def _absolute(cls, value: Path | None) -> Path | None:
        if value is None:
            return None
        try:
            return value.expanduser().resolve()
        except RuntimeError as error:
            raise ValueError("'~' has no meaning here: HOME is not set; give an absolute path") from error

    @field_validator("postgres_host")
    @classmethod
    def _host(cls, value: str | None) -> str | None:
        if value and not value.startswith("/") and any(character in value for character in "@/ "):
            raise ValueError("write the name or address of a host; AAICLICK_DATABASE_URL takes a URL")
        return value

    @field_validator("machine_ids", mode="before")
    @classmethod
    def _range(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        first, _, last = value.partition("-")
        if not (first.isdecimal() and (last or first).isdecimal()):
            raise ValueError("write FIRST-LAST, for example 0-63")
        pair = int(first), int(last or first)
        if not 0 <= pair[0] <= pair[1] <= 1023:
            raise ValueError("both ends lie between 0 and 1023, the first not above the last")
        return pair

    @field_validator("task_modules", mode="before")
    @classmethod
    def _modules(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        names = tuple(name.strip() for name in value.split(",") if name.strip())
        for name in names:
            if not all(part.isidentifier() for part in name.split(".")) or name.partition(".")[0] == "__main__":
                raise ValueError(f"{name!r} is not the name of a module; write for example myapp.tasks,otherapp")
        return names

    @field_validator("oidc_algorithms", mode="before")
    @classmethod
    def _algorithms(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        names = tuple(name.strip() for name in value.split(",") if name.strip())
        if not names or not set(names) <= OIDC_ALGORITHMS:
            raise ValueError(
                f"choose from {', '.join(sorted(OIDC_ALGORITHMS))}: keys that only the provider can sign with"
            )
        return names

    @field_validator("parquet_prefixes", mode="before")
    @classmethod
    def _prefixes(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        return tuple(_parse_prefix(entry.strip()) for entry in value.split(",") if entry.strip())

    @field_validator("private_hosts", mode="before")
    @classmethod
    def _private_hosts(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        return parse_private_hosts([entry.strip() for entry in value.split(",") if entry.strip()])

    @field_validator("api_key", mode="before")
    @classmethod
    def _check_api_key(cls, value: object) -> object:
        if isinstance(value, str):
            value = value.strip()  # files of secrets end with a line break
            if not (value.isascii() and value.isprintable()):
                raise ValueError("an API key has printable ASCII characters only; copy it again")
        return value

    @field_validator("secrets_key")
    @classmethod
    def _secrets_key(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            parse_secret_keys(value.get_secret_value())
        return value

    @field_validator("secrets_map", mode="before")
    @classmethod
    def _secrets_map(cls, value: object) -> object:
        return parse_secrets_map(value) if isinstance(value, str) else value

    @field_validator("runtimes", mode="before")
    @classmethod
    def _runtimes(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        endpoints = tuple(parse_runtime(entry.strip()) for entry in value.split(",") if entry.strip())
        if len({(endpoint.name, endpoint.org) for endpoint in endpoints}) < len(endpoints):
            raise ValueError("a runtime is named twice")
        return endpoints

    @field_validator("server", "server_public_url", "oidc_issuer", "oidc_jwks_url")
    @classmethod
    def _http_url(cls, value: str | None) -> str | None:
        if value is not None and (urlsplit(value).scheme not in ("http", "https") or not urlsplit(value).hostname):
            raise ValueError("write a URL such as https://host or http://127.0.0.1:8740")
        return None if value is None else value.rstrip("/")

    @field_validator("database_url")
    @classmethod
    def _database_url(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            parse_postgres_url(value.get_secret_value())
        return value

    @field_validator("clickhouse_url")
    @classmethod
    def _clickhouse_url(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            parse_clickhouse_url(value.get_secret_value())
        return value

    @model_validator(mode="after")
    def _heartbeats_before_timeout(self) -> Settings:
        if self.worker_timeout_seconds <= self.worker_heartbeat_interval_seconds:
            raise ValueError(
                "WORKER_TIMEOUT must be longer than WORKER_HEARTBEAT_INTERVAL, or every worker counts as dead: "
                "three heartbeats are a good choice"
            )
        return self

    @model_validator(mode="after")
    def _audience_of_issuer(self) -> Settings:
        if self.oidc_issuer is not None and self.oidc_audience is None:
            raise ValueError(
                "AAICLICK_OIDC_ISSUER needs AAICLICK_OIDC_AUDIENCE: else a token for any service would be accepted"
            )
        if self.oidc_client_id is not None and self.oidc_issuer is None:
            raise ValueError("AAICLICK_OIDC_CLIENT_ID needs AAICLICK_OIDC_ISSUER")
        return self

    @model_validator(mode="after")
    def _no_mapped_secret_in_home(self) -> Settings:
        for entry in self.secrets_map:
            if entry.source == "file" and Path(entry.location).resolve().is_relative_to(self.home):
                raise ValueError(
                    f"AAICLICK_SECRETS_MAP: {entry.key} is a file below AAICLICK_HOME, which holds the installation's "
                    "own passwords; keep it elsewhere"
                )
        return self

    @property
    def postgres(self) -> PostgresEndpoint | None:
        """The remote PostgreSQL, or None for the embedded one."""
        if self.database_url is not None:
            return parse_postgres_url(self.database_url.get_secret_value())
        if self.postgres_host is None:
            return None
        password = self.postgres_password.get_secret_value() if self.postgres_password else ""
        return PostgresEndpoint(self.postgres_host, self.postgres_port, self.postgres_user, self.postgres_db, password)

    @property
    def clickhouse(self) -> ClickHouseEndpoint | None:
        """The remote ClickHouse, or None for the embedded one."""
        return parse_clickhouse_url(self.clickhouse_url.get_secret_value()) if self.clickhouse_url else None


def _parse_prefix(entry: str) -> tuple[str, str]:
    org, _, location = entry.partition("=") if "=" in entry.partition("/")[0] else ("", "", entry)
    if not location.startswith(("s3://", "/")) or not location.endswith("/"):
        raise ValueError(f"{entry!r:.80} is not s3://bucket/prefix/ or /directory/: begin and end it so")
    return org or "default", location


def load_settings() -> Settings:
    """Read the settings from the environment; an invalid variable raises SettingsError."""
    _refuse_unknown_variables()
    try:
        return Settings()
    except ValidationError as error:
        raise SettingsError(
            "\n".join(_format_error(entry) for entry in error.errors(include_input=False, include_url=False)),
            remedy="'aaiclick config' lists every variable with its meaning and its default.",
        ) from None


def _refuse_unknown_variables() -> None:
    """Raise SettingsError for an unknown AAICLICK_… variable, which is probably misspelt."""
    names = {*variable_names(), *OTHER_VARIABLES}
    for name in os.environ:
        if name.startswith("AAICLICK_") and name not in names:
            suggestions = difflib.get_close_matches(name, names, 1)
            raise SettingsError(
                f"{name}: there is no such setting" + (f"; did you mean {suggestions[0]}?" if suggestions else "."),
                remedy="Unset it. 'aaiclick config' lists every variable with its meaning and its default.",
            )


def _format_error(entry: Any) -> str:
    message = str(entry["msg"]).removeprefix("Value error, ")
    where = ".".join(str(part) for part in entry["loc"])
    return f"{where}: {message[:1].lower() + message[1:]}." if where else f"{message}."


@cache
def get_settings() -> Settings:
    """Return the settings of this process, read from the environment at first use."""
    return load_settings()


def variable_names() -> dict[str, str]:
    """Environment variable → field name, in the order of declaration."""
    return {str(info.validation_alias): name for name, info in Settings.model_fields.items()}


@dataclass(frozen=True)
class SettingDescription:
    """A row of `aaiclick config`."""

    name: str
    value: str
    source: str
    meaning: str


def describe_settings(settings: Settings) -> list[SettingDescription]:
    """Describe every variable: value (secrets hidden), source and meaning."""
    return [_describe_variable(settings, name, attribute) for name, attribute in variable_names().items()]


def _describe_variable(settings: Settings, name: str, attribute: str) -> SettingDescription:
    value: object = getattr(settings, attribute)
    is_set = bool(os.environ.get(name))
    source = "environment" if is_set else "default"
    if is_set and name.startswith("POSTGRES_") and (settings.database_url or not settings.postgres_host):
        winner = "AAICLICK_DATABASE_URL is set" if settings.database_url else "POSTGRES_HOST is not set"
        source = f"environment (unused: {winner})"
    meaning = str(Settings.model_fields[attribute].description)
    return SettingDescription(name, _format_value(attribute, value, settings), source, meaning)


def _format_value(attribute: str, value: object, settings: Settings) -> str:
    if value is None:
        return ""
    if attribute == "database_url":
        return str(settings.postgres)
    if attribute == "clickhouse_url":
        return str(settings.clickhouse)
    if attribute in ("task_modules", "oidc_algorithms"):
        return ",".join(getattr(settings, attribute))
    if attribute == "parquet_prefixes":
        return ",".join(f"{org}={location}" for org, location in settings.parquet_prefixes)
    if attribute == "secrets_map":
        return ",".join(f"{entry.key}={entry.source}:{entry.location}" for entry in settings.secrets_map)
    if attribute == "runtimes":
        return ",".join(str(endpoint) for endpoint in settings.runtimes)
    if isinstance(value, tuple):
        return "-".join(str(part) for part in value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if isinstance(value, float):
        return f"{value:.15g}"
    return "********" if isinstance(value, SecretStr) else str(value)


def get_logs_dir(settings: Settings | None = None) -> Path:
    """Return the directory of task logs, created if missing: AAICLICK_LOG_DIR, or `logs/tasks` in AAICLICK_HOME."""
    settings = settings or get_settings()
    if settings.log_dir is not None:
        return _ensure_writable(settings.log_dir, "AAICLICK_LOG_DIR")
    return _ensure_writable(settings.home / "logs" / "tasks", "AAICLICK_HOME")


def _ensure_writable(directory: Path, origin: str) -> Path:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(
            f"{origin}: task logs cannot be stored in {directory}: {error.strerror}.",
            remedy="Set AAICLICK_LOG_DIR to a directory that you can write to.",
        ) from None
    if not os.access(directory, os.W_OK | os.X_OK):
        raise SettingsError(
            f"{origin}: task logs cannot be stored in {directory}: it is not writable.",
            remedy="Set AAICLICK_LOG_DIR to a directory that you can write to.",
        )
    return directory
