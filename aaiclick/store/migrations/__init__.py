"""Alembic's home. What must be known without importing Alembic is here."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from aaiclick.errors import SchemaError
from aaiclick.targets import PostgresTarget

HEAD = "0001"
"""The newest revision in `versions/`; a test compares it with what Alembic finds."""

VERSION_TABLE = "aaiclick_version"
"""Not Alembic's default name: the database may hold another application that uses Alembic too."""

VERSIONS = Path(__file__).parent / "versions"


def known_revisions() -> frozenset[str]:
    """Revisions that this version has a script for."""
    return frozenset(path.name.partition("_")[0] for path in VERSIONS.glob("[0-9]*_*.py"))


@cache
def initial_digest() -> str:
    """Fingerprint of the statements of the first revision, without comments and white space.

    Before the first release that revision changes, and keeps its number. A database remembers the fingerprint of the
    statements that made it, as the comment of its version table.
    """
    text = (VERSIONS / "0001_initial.sql").read_text(encoding="utf-8")
    code = " ".join(line for line in text.splitlines() if not line.lstrip().startswith("--"))
    return hashlib.sha256(" ".join(code.split()).encode()).hexdigest()[:16]


def remember_digest() -> str:
    """The statement that records the fingerprint."""
    return f"COMMENT ON TABLE {VERSION_TABLE} IS 'initial schema {initial_digest()}'"


def newer_schema(target: PostgresTarget, revision: str) -> SchemaError:
    return SchemaError(
        f"{target} is at revision {revision}, which this version of aaiclick does not know: a newer version made it.",
        remedy="Upgrade aaiclick here, or downgrade the schema with the newer version. 'aaiclick migrate history' "
        "lists the revisions that this version knows.",
    )


def check_digest(target: PostgresTarget, comment: str | None) -> None:
    """Raise SchemaError if the tables were made by other statements of the first revision than those of today."""
    if comment != f"initial schema {initial_digest()}":
        raise SchemaError(
            f"The tables of {target} were made by an earlier build of this version of aaiclick, and differ from those "
            "that it needs.",
            remedy="No migration leads from one build to the next before the first release. Export what you need with "
            "the build that made them; then give aaiclick an empty database, or for the embedded one run "
            "'aaiclick down' and set AAICLICK_HOME to a new directory.",
        )
