"""A template whose children do as they are told: `python -m tests.unit.worker.template_of_echoes HANDLE`."""

import os
import signal
import socket
import sys

from aaiclick.orchestration.worker.template import serve


def obey(end):
    for word in end.makefile():
        if word == "exit\n":
            os._exit(7)
        if word == "die\n":
            os.kill(os.getpid(), signal.SIGKILL)
        if word == "break\n":
            raise ValueError("It cannot be done.")
        end.sendall(f"{os.getpid()} {os.getppid()}\n".encode())


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])), obey)
