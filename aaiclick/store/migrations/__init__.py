"""Alembic's home. What must be known without importing Alembic is here."""

from __future__ import annotations

HEAD = "0001"
"""The newest revision in `versions/`; a test compares it with what Alembic finds."""

VERSION_TABLE = "aaiclick_version"
"""Not Alembic's default name: the database may hold another application that uses Alembic too."""
