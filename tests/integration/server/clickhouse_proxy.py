"""HTTP proxy before a ClickHouse with users in a file; records statements that create, change or drop users.

The ClickHouse of the wheel cannot create users by SQL. All other queries are forwarded. `write_users` writes the
recorded users to the file, with the grants of their roles.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.integration.cluster.nodes import ClusterNode

_ABOUT_USERS = re.compile(rb"(?:CREATE ROLE|CREATE USER|ALTER USER|DROP USER|GRANT)\b[^\r\n]*")
_HOP = ("transfer-encoding", "connection", "keep-alive", "content-length")
_USER = """<{name}><password_sha256_hex>{digest}</password_sha256_hex><networks><ip>127.0.0.1</ip></networks>
  <profile>default</profile><quota>default</quota><grants>{grants}</grants></{name}>"""


class ClickHouseProxy:
    """A proxy on its own port, until it is closed."""

    def __init__(self, node: ClusterNode) -> None:
        self._node = node
        self._changed = threading.Condition()
        self.statements: list[str] = []
        self._users: set[str] = set()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._make_handler())
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def wait_until(self, condition: Callable[[list[str]], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: condition(self.statements), 30), self.statements

    def write_users(self) -> None:
        """Write the recorded users to the file; the node must be restarted."""
        granted: dict[str, list[str]] = {}
        users: dict[str, str] = {}
        for text in self.statements:
            if match := re.fullmatch(r"GRANT (.*) TO `(\w+)`", text):
                granted.setdefault(match[2], []).append(re.sub(r"CURRENT GRANTS \((.*)\)", r"\1", match[1]))
            elif match := re.match(r"ALTER USER `(\w+)` IDENTIFIED WITH sha256_password BY '(\w+)'", text):
                users[match[1]] = match[2]
        entries = []
        for name, password in users.items():
            [role] = {role.strip("`") for role in granted[name]}
            grants = "".join(f"<query>GRANT {text}</query>" for text in dict.fromkeys(granted[role]))
            digest = hashlib.sha256(password.encode()).hexdigest()
            entries.append(_USER.format(name=name, digest=digest, grants=grants))
        file = self._node.directory / "users.xml"
        file.write_text(file.read_text().replace("</users>", "".join(entries) + "</users>"))

    def _record_statement(self, text: str) -> None:
        with self._changed:
            self.statements.append(text)
            if match := re.match(r"(CREATE|DROP) USER IF (?:NOT )?EXISTS `(\w+)`", text):
                (self._users.add if match[1] == "CREATE" else self._users.discard)(match[2])
            self._changed.notify_all()

    def _add_users(self, body: bytes) -> bytes:
        """Add the recorded users to queries of `system.users`."""
        names = ", ".join(f"'{name}'" for name in sorted(self._users))
        select = f"SELECT name FROM system.users UNION DISTINCT SELECT arrayJoin([{names}]::Array(String)) AS name"
        return body.replace(b"FROM system.users", f"FROM ({select})".encode())

    def _make_handler(proxy) -> type[BaseHTTPRequestHandler]:  # noqa: N805  (`self` is the handler)
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # headers and body in one packet

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                match = _ABOUT_USERS.search(body)
                if match:
                    proxy._record_statement(match[0].decode())
                    self._answer(200, [], b"")
                    return
                connection = HTTPConnection("127.0.0.1", proxy._node.http)
                body = proxy._add_users(body)
                headers = {name: value for name, value in self.headers.items() if name.lower() != "content-length"}
                connection.request("POST", self.path, body, headers)
                answer = connection.getresponse()
                forwarded = [(name, value) for name, value in answer.getheaders() if name.lower() not in _HOP]
                self._answer(answer.status, forwarded, answer.read())
                connection.close()

            do_GET = do_POST  # noqa: N815

            def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
                self.send_response_only(status)
                for name, value in [*headers, ("Content-Length", str(len(body)))]:
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """No access log."""

        return Handler
