"""The HTTP service: one API for people, programs and remote workers."""

from __future__ import annotations

from aaiclick.server.app import create_app
from aaiclick.server.run import serve
from aaiclick.server.service import Service

__all__ = ["Service", "create_app", "serve"]
