"""Fork server for tests, with children that run commands: `python -m tests.unit.worker.echo_fork_server HANDLE`."""

import os
import signal
import socket
import sys

from aaiclick.orchestration.worker.fork_server import run_fork_server


def run_commands(end):
    for command in end.makefile():
        if command == "exit\n":
            os._exit(7)
        if command == "die\n":
            os.kill(os.getpid(), signal.SIGKILL)
        if command == "break\n":
            raise ValueError("It cannot be done.")
        end.sendall(f"{os.getpid()} {os.getppid()}\n".encode())


if __name__ == "__main__":
    run_fork_server(socket.socket(fileno=int(sys.argv[1])), run_commands)
