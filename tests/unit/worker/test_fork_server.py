"""Fork server: children start, end, and report their exit codes."""

import asyncio
import os
import signal
import socket
from pathlib import Path

import psutil
import pytest

from aaiclick.orchestration.worker.fork_server import ForkServer, ForkServerLostError


@pytest.fixture(autouse=True)
def _path(monkeypatch):
    """Children do not search modules in the current directory."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]), prepend=os.pathsep)


@pytest.fixture
async def fork_server():
    fork_server = ForkServer.spawn("tests.unit.worker.echo_fork_server")
    yield fork_server
    await fork_server.close()


class Child:
    def __init__(self, pid, end):
        self.pid = pid
        self._end = end

    @classmethod
    async def of(cls, fork_server):
        parent_end, child_end = socket.socketpair()
        parent_end.setblocking(False)
        try:
            return cls(await fork_server.start_child(child_end), parent_end)
        except OSError:
            parent_end.close()
            raise

    async def send(self, command):
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(self._end, f"{command}\n".encode())
        return (await loop.sock_recv(self._end, 100)).decode().split()

    def close(self):
        self._end.close()


@pytest.mark.parametrize(("command", "code"), [("exit", 7), ("die", -9), ("break", 1), ("hello", -9)])
async def test_exit_code_of_a_child_is_returned(fork_server, command, code):
    child, other = await Child.of(fork_server), await Child.of(fork_server)
    response = await child.send(command)
    assert bool(response) is (command == "hello")
    assert await fork_server.end_child(child.pid) == code
    assert int((await other.send("hello"))[0]) == other.pid, "other children are not affected"
    child.close()
    other.close()


async def test_exit_code_is_kept_for_a_late_request(fork_server):
    child = await Child.of(fork_server)
    await child.send("exit")
    other_children = [await Child.of(fork_server) for _ in range(3)]
    assert await fork_server.end_child(child.pid) == 7
    for other in (child, *other_children):
        other.close()


async def test_children_run_independently(fork_server):
    children = await asyncio.gather(*(Child.of(fork_server) for _ in range(20)))
    responses = [await child.send("hello") for child in children]
    assert [int(pid) for pid, _ in responses] == [child.pid for child in children]
    assert len({pid for pid, _ in responses}) == 20
    for child in children:
        child.close()


async def test_cancelled_request_does_not_affect_the_next(fork_server):
    parent_end, child_end = socket.socketpair()
    request = asyncio.create_task(fork_server.start_child(child_end))
    await asyncio.sleep(0)
    request.cancel()
    await asyncio.gather(request, return_exceptions=True)
    parent_end.close()
    child = await Child.of(fork_server)
    assert int((await child.send("hello"))[0]) == child.pid
    child.close()


async def test_fork_server_ignores_sigterm_and_reports_its_death(fork_server):
    child = await Child.of(fork_server)
    server_pid = int((await child.send("hello"))[1])
    os.kill(server_pid, signal.SIGTERM)
    os.kill(child.pid, signal.SIGTERM)
    other = await Child.of(fork_server)
    assert int((await other.send("hello"))[1]) == server_pid
    assert int((await child.send("hello"))[0]) == child.pid
    os.kill(server_pid, signal.SIGKILL)
    with pytest.raises(ForkServerLostError):
        await Child.of(fork_server)
    child.close()
    other.close()


async def test_children_end_with_their_fork_server():
    fork_server = ForkServer.spawn("tests.unit.worker.echo_fork_server")
    child = await Child.of(fork_server)
    process = psutil.Process(child.pid)
    await fork_server.close()
    assert not (await asyncio.to_thread(psutil.wait_procs, [process], 10))[1]
    child.close()
