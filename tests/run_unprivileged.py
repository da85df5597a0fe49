"""Run a command as an unprivileged user, since PostgreSQL refuses to run as root.

    python -m tests.run_unprivileged initdb …

A separate process is needed: a process with threads cannot enter a user namespace, and OpenTelemetry starts threads.
"""

import os
import sys

from aaiclick.local.drop_privileges import choose_unprivileged_user

if __name__ == "__main__":
    choose_unprivileged_user(die_with_parent=False).drop_privileges()
    os.chdir("/")
    os.execv(sys.argv[1], sys.argv[1:])
