"""A session of the web UI without a browser: cookies and CSRF token."""

from __future__ import annotations

import re
import weakref
from typing import TYPE_CHECKING

import httpx

if TYPE_CHECKING:
    from tests.integration.server.conftest import Site


class Browser:
    """A session of the web UI."""

    def __init__(self, site: Site, role: str | None) -> None:
        self.client = httpx.Client(base_url=site.server.url, timeout=30)
        weakref.finalize(self, self.client.close)
        self.csrf = self.token("/sign-in")
        if role is not None:
            form = {"csrf": self.csrf, "credential": site.keys[role]}
            assert self.client.post("/sign-in", data=form).status_code == 303
            self.csrf = self.token("/")

    def token(self, path: str) -> str:
        match = re.search(r'name="csrf" value="(\w+)"', self.client.get(path).text)
        assert match is not None
        return match.group(1)
