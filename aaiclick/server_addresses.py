"""Endpoints: addresses and credentials of servers. Settings name remote ones, `aaiclick.local` the embedded ones.

Error messages never contain the password of a URL.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import Any
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

DATABASE_SCHEMES = ("postgresql", "postgres", "postgresql+asyncpg")
CLICKHOUSE_SCHEMES = {"http": 8123, "https": 8443}
_RUNTIME_NAME = re.compile(r"lambda|ecs_[a-z0-9_]{1,40}")
_SECRET_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HOST = re.compile(r"(?=.*[a-z])[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*")


@dataclass(frozen=True)
class PostgresEndpoint:
    """Address and credentials of a PostgreSQL database; `host` is a directory for a unix socket."""

    host: str
    port: int
    user: str
    database: str
    password: str = field(default="", repr=False)
    options: tuple[tuple[str, str], ...] = ()

    @property
    def address(self) -> str:
        """Address of the server, without database and credential."""
        return f"{self.host}:{self.port}"

    @property
    def dsn(self) -> str:
        """The libpq URL with the password: for drivers, never for a log."""
        credential = quote(self.user, safe="") + (f":{quote(self.password, safe='')}" if self.password else "")
        options = list(self.options)
        if self.host.startswith("/"):
            location, options = "", [("host", self.host), ("port", str(self.port)), *options]
        else:
            location = f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
        query = f"?{urlencode(options)}" if options else ""
        return f"postgresql://{credential}@{location}/{quote(self.database, safe='')}{query}"

    def __str__(self) -> str:
        where = f"socket {self.host}" if self.host.startswith("/") else f"{self.host}:{self.port}"
        return f"PostgreSQL database {self.database!r} at {where} (user {self.user!r})"

    def with_database(self, database: str) -> PostgresEndpoint:
        return PostgresEndpoint(self.host, self.port, self.user, database, self.password, self.options)


@dataclass(frozen=True)
class ClickHouseEndpoint:
    """Address and credentials of a ClickHouse database; `path` is the URL prefix that the server requires, if any."""

    host: str
    port: int
    user: str
    database: str
    password: str = field(default="", repr=False)
    secure: bool = False
    path: str = field(default="", repr=False)
    cluster: str = ""
    """Name of the cluster that Objects are distributed over, in the servers' configuration."""

    others: tuple[ClickHouseEndpoint, ...] = ()
    """The other nodes of the cluster, one per shard; this one receives the queries."""

    @property
    def address(self) -> str:
        """Address of the server, without database and credential."""
        return f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """The value for AAICLICK_CLICKHOUSE_URL, with the password: never for a log."""
        return " ".join(node._node_url for node in (self, *self.others))

    @property
    def query_url(self) -> str:
        """URL for posting statements, with the password: never for a log."""
        return f"{self._base_url}/{quote(self.path)}?{urlencode({'database': self.database})}"

    @property
    def _node_url(self) -> str:
        options = {name: value for name, value in (("path", self.path), ("cluster", self.cluster)) if value}
        query = f"?{urlencode(options)}" if options else ""
        return f"{self._base_url}/{quote(self.database, safe='')}{query}"

    @property
    def _base_url(self) -> str:
        scheme = "https" if self.secure else "http"
        credential = f"{quote(self.user, safe='')}:{quote(self.password, safe='')}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{credential}@{host}:{self.port}"

    def __str__(self) -> str:
        cluster = f"cluster {self.cluster!r}, " if self.cluster else ""
        return f"ClickHouse database {self.database!r} at {self.host}:{self.port} ({cluster}user {self.user!r})"

    def __hash__(self) -> int:
        """Hash three fields only: endpoints are looked up for each task, and this takes a quarter of the time."""
        return hash((self.host, self.port, self.database))

    @staticmethod
    def of(fields: Mapping[str, Any]) -> ClickHouseEndpoint:
        """Create an endpoint from the result of `asdict`, which may have been through JSON."""
        values: dict[str, Any] = {name: value for name, value in fields.items() if name != "others"}
        return ClickHouseEndpoint(**values, others=tuple(map(ClickHouseEndpoint.of, fields["others"])))

    def with_database(self, database: str) -> ClickHouseEndpoint:
        return replace(self, database=database, others=tuple(node.with_database(database) for node in self.others))


@dataclass(frozen=True)
class ServerEndpoint:
    """Address and API key of an aaiclick server."""

    url: str
    key: str = field(default="", repr=False)

    @property
    def address(self) -> str:
        """Address of the server, without the key."""
        return self.url

    def __str__(self) -> str:
        return f"the server at {self.url}"


@dataclass(frozen=True)
class RuntimeEndpoint:
    """Destination of a runtime's tasks: the URL of an SQS queue (`ecs_…`) or the name of a function (`lambda`).

    `org` limits it to one organisation. Without it, `ecs_…` takes the tasks of every organisation that has no entry,
    and `lambda` those of the default one, since a function has the key of one organisation.
    """

    name: str
    address: str
    org: str | None = None

    def __str__(self) -> str:
        return f"{self.name}{'' if self.org is None else '@' + self.org}={self.address}"


@dataclass(frozen=True)
class PrivateHosts:
    """Servers without a public address that tasks may fetch from."""

    names: tuple[str, ...] = ()
    networks: tuple[IPv4Network | IPv6Network, ...] = ()

    def allow_host(self, host: str, address: IPv4Address | IPv6Address) -> bool:
        """Whether requests to a host at this address are allowed."""
        return host.lower().rstrip(".") in self.names or any(address in network for network in self.networks)

    def __str__(self) -> str:
        return ",".join((*self.names, *map(str, self.networks)))


WorkEndpoint = PostgresEndpoint | ServerEndpoint
"""Endpoint that a worker claims tasks from."""


def parse_postgres_url(url: str) -> PostgresEndpoint:
    """Parse a PostgreSQL URL; raises ValueError with a message that does not contain the password."""
    parts = _split_url(url)
    if parts.scheme not in DATABASE_SCHEMES:
        raise ValueError("write postgresql://user:password@host:5432/database")
    options = dict(parse_qsl(parts.query))
    host = parts.hostname or options.pop("host", "")
    if not host:
        raise ValueError("the URL names no host: write postgresql://user:password@host:5432/database")
    port = _parse_port(url) or int(options.pop("port", 5432))
    user = unquote(parts.username or "aaiclick")
    database = unquote(parts.path.strip("/")) or user
    return PostgresEndpoint(host, port, user, database, unquote(parts.password or ""), tuple(options.items()))


def parse_clickhouse_url(text: str) -> ClickHouseEndpoint:
    """Parse a ClickHouse HTTP URL, or those of a cluster's nodes.

    Raises ValueError with a message without the password.
    """
    first, *other_nodes = [_parse_node(url) for url in text.split()] or [_parse_node("")]
    if bool(other_nodes) != bool(first.cluster):
        raise ValueError(
            "a cluster is several URLs with spaces between, one for each shard, the first with ?cluster=NAME"
        )
    if any(node.database != first.database or node.cluster not in ("", first.cluster) for node in other_nodes):
        raise ValueError("the nodes of a cluster have one database name and one cluster name")
    return replace(first, others=tuple(replace(node, cluster="") for node in other_nodes))


def parse_private_hosts(entries: Sequence[str]) -> PrivateHosts:
    """Parse host names, addresses and networks; raises ValueError for anything else."""
    names = tuple(entry.lower() for entry in entries if _HOST.fullmatch(entry.lower()))
    return PrivateHosts(names, tuple(_parse_network(entry) for entry in entries if entry.lower() not in names))


def _parse_network(entry: str) -> IPv4Network | IPv6Network:
    try:
        return ip_network(entry)
    except ValueError:
        raise ValueError(
            f"{entry!r:.80} is not a host, an address or a network: write for example intranet,10.0.0.0/8,127.0.0.1"
        ) from None


def _parse_node(url: str) -> ClickHouseEndpoint:
    parts = _split_url(url)
    if parts.scheme not in CLICKHOUSE_SCHEMES:
        raise ValueError("write http://user:password@host:8123/database, or https:// for TLS")
    if not parts.hostname:
        raise ValueError("the URL names no host: write http://user:password@host:8123/database")
    return ClickHouseEndpoint(
        host=parts.hostname,
        port=_parse_port(url) or CLICKHOUSE_SCHEMES[parts.scheme],
        user=unquote(parts.username or "default"),
        database=unquote(parts.path.strip("/")) or "default",
        password=unquote(parts.password or ""),
        secure=parts.scheme == "https",
        path=dict(parse_qsl(parts.query)).get("path", "").strip("/"),
        cluster=dict(parse_qsl(parts.query)).get("cluster", ""),
    )


def _split_url(url: str) -> SplitResult:
    parts = urlsplit(url)
    if "@" in parts.path + parts.query + parts.fragment:
        raise ValueError(
            "there is an '@' behind the host, so the password probably has special characters in it: "
            "write them as %40 for '@', %2F for '/', %3A for ':', %23 for '#', %3F for '?', %25 for '%'"
        )
    return parts


def _parse_port(url: str) -> int | None:
    try:
        return urlsplit(url).port
    except ValueError as error:
        raise ValueError("the port is not a number between 1 and 65535") from error


def parse_runtime(entry: str) -> RuntimeEndpoint:
    """Parse NAME=ADDRESS or NAME@ORG=ADDRESS; raises ValueError."""
    names, _, address = (part.strip() for part in entry.partition("="))
    name, _, org = names.partition("@")
    if not _RUNTIME_NAME.fullmatch(name) or not address or ("@" in names and not org):
        raise ValueError(f"{entry!r:.80} is not ecs_NAME=SQS_QUEUE_URL or lambda=FUNCTION")
    if name != "lambda" and not urlsplit(address).hostname:
        raise ValueError(
            f"{name} needs the URL of an SQS queue, such as https://sqs.REGION.amazonaws.com/ACCOUNT/QUEUE"
        )
    return RuntimeEndpoint(name, address, org or None)


SECRET_KEY_BYTES = 32
OWN_VARIABLES = ("AAICLICK_", "POSTGRES_", "PGPASS")
"""Prefixes of variables with the installation's own passwords, which no secret may be read from."""
SYSTEM_DIRECTORIES = ("/proc/", "/sys/", "/dev/")
"""Directories without data files: /proc/self/environ contains every variable."""


@dataclass(frozen=True)
class MappedSecret:
    """An entry of AAICLICK_SECRETS_MAP: an organisation's secret in a variable or file of this machine."""

    org: str
    """Slug of the organisation."""
    name: str
    source: str
    """`env` or `file`."""
    location: str
    host: str | None = None

    @property
    def key(self) -> str:
        return f"{self.org}/{self.name}"


def parse_secret_keys(text: str) -> list[bytes]:
    """Parse encryption keys, newest first; raises ValueError."""
    keys: list[bytes] = []
    for entry in re.split(r"[,\s]+", text.strip()):
        try:
            key = base64.urlsafe_b64decode(entry)
        except ValueError:
            key = b""
        if len(key) != SECRET_KEY_BYTES:
            raise ValueError(f"a key is {SECRET_KEY_BYTES} bytes in URL-safe base64; 'aaiclick secrets key' makes one")
        keys.append(key)
    return keys


def parse_secrets_map(text: str) -> tuple[MappedSecret, ...]:
    """Parse AAICLICK_SECRETS_MAP; raises ValueError."""
    try:
        entries: Any = json.loads(text)
    except ValueError:
        entries = None
    if not isinstance(entries, dict):
        raise ValueError('write a JSON object such as {"acme/token": "env:ACME_TOKEN"}')
    return tuple(_parse_mapped_secret(str(key), value) for key, value in entries.items())  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


def _parse_mapped_secret(key: str, value: object) -> MappedSecret:
    org, slash, name = key.partition("/")
    if not org or not slash or not is_secret_name(name):
        raise ValueError(f"{key!r:.80} is not ORG/NAME: the slug of an organisation and the name of a secret")
    reference: Any = value
    host: str | None = None
    if isinstance(value, dict):
        fields: dict[str, object] = {str(field): part for field, part in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        if not {"from"} <= set(fields) <= {"from", "host"}:
            raise ValueError(f'{key}: write {{"from": "env:VARIABLE", "host": "api.example.com"}}')
        reference, host = fields["from"], parse_secret_host(str(fields["host"])) if "host" in fields else None
    source_type, _, location = reference.partition(":") if isinstance(reference, str) else ("", "", "")
    if source_type == "env" and _VARIABLE.fullmatch(location):
        if location.upper().startswith(OWN_VARIABLES):
            raise ValueError(f"{key}: {location} may contain a password of the installation; use another variable")
    elif source_type == "file" and location.startswith("/"):
        if location.startswith(SYSTEM_DIRECTORIES):
            raise ValueError(f"{key}: {location} is not a file of data")
    else:
        raise ValueError(f"{key}: write env:VARIABLE or file:/absolute/path")
    return MappedSecret(org, name, source_type, location, host)


def is_secret_name(name: str) -> bool:
    return _SECRET_NAME.fullmatch(name) is not None


def parse_secret_host(text: str) -> str:
    """Return the origin that a secret is bound to; the scheme defaults to https."""
    url = text.strip() if "://" in text else f"https://{text.strip()}"
    parts = urlsplit(url)
    if parts.path not in ("", "/") or parts.query or parts.fragment or "@" in url or not text.isascii():
        raise ValueError("write a host such as api.example.com, api.example.com:8443 or http://10.0.0.7:8080")
    origin = origin_of(url)
    if origin is None:
        raise ValueError("write a host such as api.example.com, api.example.com:8443 or http://10.0.0.7:8080")
    return origin


def origin_of(url: str) -> str | None:
    """Return the normalised scheme, host and port of an http(s) URL; None if it has none."""
    try:
        parts = urlsplit(url)
        scheme, host, port = parts.scheme.lower(), parts.hostname, parts.port
    except ValueError:
        return None
    if scheme not in ("http", "https") or not host or parts.username or parts.password:
        return None
    host_text = f"[{host}]" if ":" in host else host
    default = 443 if scheme == "https" else 80
    return f"{scheme}://{host_text.lower()}" + ("" if port in (None, default) else f":{port}")
