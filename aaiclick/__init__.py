"""Durable data processing: data in ClickHouse, work in PostgreSQL, one machine or many."""

from aaiclick._version import __version__

__all__ = ["__version__"]
