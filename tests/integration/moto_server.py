"""moto server in its own process: SQS, Lambda and S3 on loopback."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

SERVER = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
server.stop()
"""
VARIABLES = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION",
             "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_PROFILE")  # fmt: skip


def moto_server() -> Iterator[str]:
    """Run the server; yields its address."""
    environ = {key: value for key, value in os.environ.items() if key not in VARIABLES}
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True, env=environ,
    ) as server:  # fmt: skip
        yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        server.stdin.close()
        server.wait(timeout=30)
