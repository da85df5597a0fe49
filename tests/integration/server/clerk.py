"""Stands before a ClickHouse that keeps users in a file and takes what would make, change or drop them by SQL.

The ClickHouse of the wheel makes no users by SQL. Everything else is passed on. `write_down` puts the users that were
made into the file, with exactly what their roles were granted.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.integration.cluster.nodes import Node

_ABOUT_USERS = re.compile(rb"(?:CREATE ROLE|CREATE USER|ALTER USER|DROP USER|GRANT)\b[^\r\n]*")
_HOP = ("transfer-encoding", "connection", "keep-alive", "content-length")
_USER = """<{name}><password_sha256_hex>{digest}</password_sha256_hex><networks><ip>127.0.0.1</ip></networks>
  <profile>default</profile><quota>default</quota><grants>{grants}</grants></{name}>"""


class Clerk:
    """One at a port of its own, until it is closed."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._heard = threading.Condition()
        self.said: list[str] = []
        self._users: set[str] = set()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def wait_until(self, heard: Callable[[list[str]], bool]) -> None:
        with self._heard:
            assert self._heard.wait_for(lambda: heard(self.said), 30), self.said

    def write_down(self) -> None:
        """What was said so far, into the file; the node has to be started again."""
        granted: dict[str, list[str]] = {}
        users: dict[str, str] = {}
        for text in self.said:
            if found := re.fullmatch(r"GRANT (.*) TO `(\w+)`", text):
                granted.setdefault(found[2], []).append(re.sub(r"CURRENT GRANTS \((.*)\)", r"\1", found[1]))
            elif found := re.match(r"ALTER USER `(\w+)` IDENTIFIED WITH sha256_password BY '(\w+)'", text):
                users[found[1]] = found[2]
        written = []
        for name, password in users.items():
            [role] = {role.strip("`") for role in granted[name]}
            grants = "".join(f"<query>GRANT {text}</query>" for text in dict.fromkeys(granted[role]))
            digest = hashlib.sha256(password.encode()).hexdigest()
            written.append(_USER.format(name=name, digest=digest, grants=grants))
        file = self._node.directory / "users.xml"
        file.write_text(file.read_text().replace("</users>", "".join(written) + "</users>"))

    def _take(self, text: str) -> None:
        with self._heard:
            self.said.append(text)
            if found := re.match(r"(CREATE|DROP) USER IF (?:NOT )?EXISTS `(\w+)`", text):
                (self._users.add if found[1] == "CREATE" else self._users.discard)(found[2])
            self._heard.notify_all()

    def _with_users(self, body: bytes) -> bytes:
        """A query of `system.users` finds the users made by SQL too: the server forgets those that are not there."""
        names = ", ".join(f"'{name}'" for name in sorted(self._users))
        made = f"SELECT name FROM system.users UNION DISTINCT SELECT arrayJoin([{names}]::Array(String)) AS name"
        return body.replace(b"FROM system.users", f"FROM ({made})".encode())

    def _handler(clerk) -> type[BaseHTTPRequestHandler]:  # noqa: N805  (there are two selves here)
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # head and body in one piece

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                found = _ABOUT_USERS.search(body)
                if found:
                    clerk._take(found[0].decode())
                    self._answer(200, [], b"")
                    return
                behind = HTTPConnection("127.0.0.1", clerk._node.http)
                body = clerk._with_users(body)
                headers = {name: value for name, value in self.headers.items() if name.lower() != "content-length"}
                behind.request("POST", self.path, body, headers)
                answer = behind.getresponse()
                kept = [(name, value) for name, value in answer.getheaders() if name.lower() not in _HOP]
                self._answer(answer.status, kept, answer.read())
                behind.close()

            do_GET = do_POST  # noqa: N815

            def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
                self.send_response_only(status)
                for name, value in [*headers, ("Content-Length", str(len(body)))]:
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Nobody reads it."""

        return Handler
