"""Run a command as an ordinary user: PostgreSQL refuses root.

    python -m tests.disguised initdb …

In a process of its own, because a process may fork into one with threads (OpenTelemetry does so in every process that
traces), and such a one may not enter a user namespace.
"""

import os
import sys

from aaiclick.local.unprivileged import choose_disguise

if __name__ == "__main__":
    choose_disguise(die_with_parent=False).enter()
    os.chdir("/")
    os.execv(sys.argv[1], sys.argv[1:])
