"""Alembic migrations, and facts about them that are needed without importing Alembic.

- `env`: run by Alembic for each command
- `versions`: the revisions
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from aaiclick.errors import SchemaError
from aaiclick.server_addresses import PostgresEndpoint

HEAD = "0001"
"""The newest revision in `versions/`; a test compares it with what Alembic finds."""

VERSION_TABLE = "aaiclick_version"
"""Not Alembic's default name: the database may hold another application that uses Alembic too."""

VERSIONS = Path(__file__).parent / "versions"


def list_known_revisions() -> frozenset[str]:
    """Revisions that this version has scripts for."""
    return frozenset(path.name.partition("_")[0] for path in VERSIONS.glob("[0-9]*_*.py"))


@cache
def compute_initial_digest() -> str:
    """Digest of the statements of the first revision, without comments and white space.

    Before the first release that revision changes, and keeps its number. The comment of the version table records the
    digest of the statements that created a database.
    """
    text = (VERSIONS / "0001_initial.sql").read_text(encoding="utf-8")
    code = " ".join(line for line in text.splitlines() if not line.lstrip().startswith("--"))
    return hashlib.sha256(" ".join(code.split()).encode()).hexdigest()[:16]


def comment_digest_sql() -> str:
    """The statement that records the digest in the comment of the version table."""
    return f"COMMENT ON TABLE {VERSION_TABLE} IS 'initial schema {compute_initial_digest()}'"


def newer_schema_error(endpoint: PostgresEndpoint, revision: str) -> SchemaError:
    return SchemaError(
        f"{endpoint} is at revision {revision}, which this version of aaiclick does not know: a newer version made it.",
        remedy="Upgrade aaiclick here, or downgrade the schema with the newer version. 'aaiclick migrate history' "
        "lists the revisions that this version knows.",
    )


def check_digest(endpoint: PostgresEndpoint, comment: str | None) -> None:
    """Raise SchemaError if another build of the first revision created the tables."""
    if comment != f"initial schema {compute_initial_digest()}":
        raise SchemaError(
            f"The tables of {endpoint} were made by an earlier build of this version of aaiclick, and differ from "
            "those that it needs.",
            remedy="No migration leads from one build to the next before the first release. Export what you need with "
            "the build that made them; then give aaiclick an empty database, or for the embedded one run "
            "'aaiclick down' and set AAICLICK_HOME to a new directory.",
        )
