"""Where servers are, and who we are there: *targets*. Settings name remote ones, `aaiclick.local` the embedded ones.

What is wrong with an address is said without repeating the password in it.
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
_RUNTIME = re.compile(r"lambda|ecs_[a-z0-9_]{1,40}")
_SECRET_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HOST = re.compile(r"(?=.*[a-z])[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*")


@dataclass(frozen=True)
class PostgresTarget:
    """Where PostgreSQL is and who we are there; `host` is a directory for a unix socket."""

    host: str
    port: int
    user: str
    database: str
    password: str = field(default="", repr=False)
    options: tuple[tuple[str, str], ...] = ()

    @property
    def endpoint(self) -> str:
        """Address of the server, without database and credential."""
        return f"{self.host}:{self.port}"

    @property
    def dsn(self) -> str:
        """The libpq form of the address, password included: for drivers, never for a log."""
        return self._url("postgresql")

    @property
    def sqlalchemy_url(self) -> str:
        return self._url("postgresql+asyncpg")

    def __str__(self) -> str:
        where = f"socket {self.host}" if self.host.startswith("/") else f"{self.host}:{self.port}"
        return f"PostgreSQL database {self.database!r} at {where} (user {self.user!r})"

    def with_database(self, database: str) -> PostgresTarget:
        return PostgresTarget(self.host, self.port, self.user, database, self.password, self.options)

    def _url(self, scheme: str) -> str:
        credential = quote(self.user, safe="") + (f":{quote(self.password, safe='')}" if self.password else "")
        options = list(self.options)
        if self.host.startswith("/"):
            place, options = "", [("host", self.host), ("port", str(self.port)), *options]
        else:
            place = f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
        query = f"?{urlencode(options)}" if options else ""
        return f"{scheme}://{credential}@{place}/{quote(self.database, safe='')}{query}"


@dataclass(frozen=True)
class ClickHouseTarget:
    """Where ClickHouse is and who we are there; `path` is a prefix that the server asks for, if any."""

    host: str
    port: int
    user: str
    database: str
    password: str = field(default="", repr=False)
    secure: bool = False
    path: str = field(default="", repr=False)
    cluster: str = ""
    """The cluster that Objects are spread over, as the servers' configuration names it."""

    others: tuple[ClickHouseTarget, ...] = ()
    """Its other nodes: this one is asked, and each of them holds a shard."""

    @property
    def endpoint(self) -> str:
        """Address of the server, without database and credential."""
        return f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """The form AAICLICK_CLICKHOUSE_URL takes, password included: never for a log."""
        return " ".join(node._own_url for node in (self, *self.others))

    @property
    def query_url(self) -> str:
        """Where a program posts a statement, password included: never for a log."""
        return f"{self._place}/{quote(self.path)}?{urlencode({'database': self.database})}"

    @property
    def _own_url(self) -> str:
        options = {name: value for name, value in (("path", self.path), ("cluster", self.cluster)) if value}
        query = f"?{urlencode(options)}" if options else ""
        return f"{self._place}/{quote(self.database, safe='')}{query}"

    @property
    def _place(self) -> str:
        scheme = "https" if self.secure else "http"
        credential = f"{quote(self.user, safe='')}:{quote(self.password, safe='')}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{credential}@{host}:{self.port}"

    def __str__(self) -> str:
        of = f"cluster {self.cluster!r}, " if self.cluster else ""
        return f"ClickHouse database {self.database!r} at {self.host}:{self.port} ({of}user {self.user!r})"

    def __hash__(self) -> int:
        """Looked up for each task: of three fields it takes a quarter of the time."""
        return hash((self.host, self.port, self.database))

    @staticmethod
    def of(fields: Mapping[str, Any]) -> ClickHouseTarget:
        """Back from `asdict`, also by way of JSON."""
        own: dict[str, Any] = {name: value for name, value in fields.items() if name != "others"}
        return ClickHouseTarget(**own, others=tuple(map(ClickHouseTarget.of, fields["others"])))

    def with_database(self, database: str) -> ClickHouseTarget:
        return replace(self, database=database, others=tuple(each.with_database(database) for each in self.others))


@dataclass(frozen=True)
class ServerTarget:
    """An aaiclick server that speaks for the databases behind it, and the key that opens it."""

    url: str
    key: str = field(default="", repr=False)

    @property
    def endpoint(self) -> str:
        """Address of the server, without the key."""
        return self.url

    def __str__(self) -> str:
        return f"the server at {self.url}"


@dataclass(frozen=True)
class RuntimeTarget:
    """Where tasks of a runtime go: the URL of an SQS queue (`ecs_…`) or the name of a function (`lambda`).

    `org` names the organisation whose tasks do; none: `ecs_…` takes those of every other one, `lambda` those of the
    default one, since a function has the key of one organisation.
    """

    name: str
    place: str
    org: str | None = None

    def __str__(self) -> str:
        return f"{self.name}{'' if self.org is None else '@' + self.org}={self.place}"


@dataclass(frozen=True)
class PrivateHosts:
    """Servers of the own network that tasks may fetch from, though no public address leads to them."""

    names: tuple[str, ...] = ()
    networks: tuple[IPv4Network | IPv6Network, ...] = ()

    def have(self, host: str, address: IPv4Address | IPv6Address) -> bool:
        """Whether a host may be reached that is at this address."""
        return host.lower().rstrip(".") in self.names or any(address in network for network in self.networks)

    def __str__(self) -> str:
        return ",".join((*self.names, *map(str, self.networks)))


WorkTarget = PostgresTarget | ServerTarget
"""Where work comes from."""


def parse_postgres_url(url: str) -> PostgresTarget:
    """Split a PostgreSQL URL; raises ValueError with words that do not repeat the password."""
    parts = _split(url)
    if parts.scheme not in DATABASE_SCHEMES:
        raise ValueError("write postgresql://user:password@host:5432/database")
    options = dict(parse_qsl(parts.query))
    host = parts.hostname or options.pop("host", "")
    if not host:
        raise ValueError("the URL names no host: write postgresql://user:password@host:5432/database")
    port = _port(url) or int(options.pop("port", 5432))
    user = unquote(parts.username or "aaiclick")
    database = unquote(parts.path.strip("/")) or user
    return PostgresTarget(host, port, user, database, unquote(parts.password or ""), tuple(options.items()))


def parse_clickhouse_url(text: str) -> ClickHouseTarget:
    """Split a ClickHouse HTTP URL, or those of a cluster's nodes; raises ValueError with words that do not repeat the
    password.
    """
    first, *others = [_parse_node(url) for url in text.split()] or [_parse_node("")]
    if bool(others) != bool(first.cluster):
        raise ValueError(
            "a cluster is several URLs with spaces between, one for each shard, the first with ?cluster=NAME"
        )
    if any(each.database != first.database or each.cluster not in ("", first.cluster) for each in others):
        raise ValueError("the nodes of a cluster have one database name and one cluster name")
    return replace(first, others=tuple(replace(each, cluster="") for each in others))


def parse_private_hosts(entries: Sequence[str]) -> PrivateHosts:
    """Names of hosts, addresses and networks, told apart; raises ValueError for what is none of them."""
    names = tuple(entry.lower() for entry in entries if _HOST.fullmatch(entry.lower()))
    return PrivateHosts(names, tuple(_network(entry) for entry in entries if entry.lower() not in names))


def _network(entry: str) -> IPv4Network | IPv6Network:
    try:
        return ip_network(entry)
    except ValueError:
        raise ValueError(
            f"{entry!r:.80} is not a host, an address or a network: write for example intranet,10.0.0.0/8,127.0.0.1"
        ) from None


def _parse_node(url: str) -> ClickHouseTarget:
    parts = _split(url)
    if parts.scheme not in CLICKHOUSE_SCHEMES:
        raise ValueError("write http://user:password@host:8123/database, or https:// for TLS")
    if not parts.hostname:
        raise ValueError("the URL names no host: write http://user:password@host:8123/database")
    return ClickHouseTarget(
        host=parts.hostname,
        port=_port(url) or CLICKHOUSE_SCHEMES[parts.scheme],
        user=unquote(parts.username or "default"),
        database=unquote(parts.path.strip("/")) or "default",
        password=unquote(parts.password or ""),
        secure=parts.scheme == "https",
        path=dict(parse_qsl(parts.query)).get("path", "").strip("/"),
        cluster=dict(parse_qsl(parts.query)).get("cluster", ""),
    )


def _split(url: str) -> SplitResult:
    parts = urlsplit(url)
    if "@" in parts.path + parts.query + parts.fragment:
        raise ValueError(
            "there is an '@' behind the host, so the password probably has special characters in it: "
            "write them as %40 for '@', %2F for '/', %3A for ':', %23 for '#', %3F for '?', %25 for '%'"
        )
    return parts


def _port(url: str) -> int | None:
    try:
        return urlsplit(url).port
    except ValueError as error:
        raise ValueError("the port is not a number between 1 and 65535") from error


def parse_runtime(entry: str) -> RuntimeTarget:
    """Split NAME=PLACE or NAME@ORG=PLACE; raises ValueError."""
    names, _, place = (part.strip() for part in entry.partition("="))
    name, _, org = names.partition("@")
    if not _RUNTIME.fullmatch(name) or not place or ("@" in names and not org):
        raise ValueError(f"{entry!r:.80} is not ecs_NAME=SQS_QUEUE_URL or lambda=FUNCTION")
    if name != "lambda" and not urlsplit(place).hostname:
        raise ValueError(
            f"{name} needs the URL of an SQS queue, such as https://sqs.REGION.amazonaws.com/ACCOUNT/QUEUE"
        )
    return RuntimeTarget(name, place, org or None)


SECRET_KEY_BYTES = 32
OWN_VARIABLES = ("AAICLICK_", "POSTGRES_", "PGPASS")
"""Prefixes of variables that hold the installation's own passwords: no secret is ever read from one."""
SYSTEM_DIRECTORIES = ("/proc/", "/sys/", "/dev/")
"""Directories whose files are not data: /proc/self/environ holds every variable."""


@dataclass(frozen=True)
class MappedSecret:
    """A secret of an organisation that is a variable or a file of this machine: an entry of AAICLICK_SECRETS_MAP."""

    org: str
    """Slug of the organisation."""
    name: str
    kind: str
    """`env` or `file`."""
    place: str
    host: str | None = None

    @property
    def key(self) -> str:
        return f"{self.org}/{self.name}"


def parse_secret_keys(text: str) -> list[bytes]:
    """Encryption keys, newest first; raises ValueError."""
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
    """The entries of AAICLICK_SECRETS_MAP; raises ValueError."""
    try:
        entries: Any = json.loads(text)
    except ValueError:
        entries = None
    if not isinstance(entries, dict):
        raise ValueError('write a JSON object such as {"acme/token": "env:ACME_TOKEN"}')
    return tuple(_mapped_secret(str(key), value) for key, value in entries.items())  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


def _mapped_secret(key: str, value: Any) -> MappedSecret:
    org, slash, name = key.partition("/")
    if not org or not slash or not is_secret_name(name):
        raise ValueError(f"{key!r:.80} is not ORG/NAME: the slug of an organisation and the name of a secret")
    reference: Any = value
    host: str | None = None
    if isinstance(value, dict):
        fields: dict[str, Any] = {str(field): part for field, part in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        if not {"from"} <= set(fields) <= {"from", "host"}:
            raise ValueError(f'{key}: write {{"from": "env:VARIABLE", "host": "api.example.com"}}')
        reference, host = fields["from"], parse_secret_host(str(fields["host"])) if "host" in fields else None
    kind, _, place = reference.partition(":") if isinstance(reference, str) else ("", "", "")
    if kind == "env" and _VARIABLE.fullmatch(place):
        if place.upper().startswith(OWN_VARIABLES):
            raise ValueError(f"{key}: {place} may hold a password of the installation, which is no one's secret")
    elif kind == "file" and place.startswith("/"):
        if place.startswith(SYSTEM_DIRECTORIES):
            raise ValueError(f"{key}: {place} is not a file of data")
    else:
        raise ValueError(f"{key}: write env:VARIABLE or file:/absolute/path")
    return MappedSecret(org, name, kind, place, host)


def is_secret_name(name: str) -> bool:
    return _SECRET_NAME.fullmatch(name) is not None


def parse_secret_host(text: str) -> str:
    """The origin that a secret is bound to: `https://` and the host, unless the text says otherwise."""
    url = text.strip() if "://" in text else f"https://{text.strip()}"
    parts = urlsplit(url)
    if parts.path not in ("", "/") or parts.query or parts.fragment or "@" in url or not text.isascii():
        raise ValueError("write a host such as api.example.com, api.example.com:8443 or http://10.0.0.7:8080")
    origin = origin_of(url)
    if origin is None:
        raise ValueError("write a host such as api.example.com, api.example.com:8443 or http://10.0.0.7:8080")
    return origin


def origin_of(url: str) -> str | None:
    """Scheme, host and port of an http(s) URL, in one spelling; None if it has none."""
    try:
        parts = urlsplit(url)
        scheme, host, port = parts.scheme.lower(), parts.hostname, parts.port
    except ValueError:
        return None
    if scheme not in ("http", "https") or not host or parts.username or parts.password:
        return None
    shown = f"[{host}]" if ":" in host else host
    default = 443 if scheme == "https" else 80
    return f"{scheme}://{shown.lower()}" + ("" if port in (None, default) else f":{port}")
