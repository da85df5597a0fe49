"""Which leases were given to a process that never heard of it: claimed before anything that still waits was asked."""

from __future__ import annotations

from uuid import uuid4

import pytest

from aaiclick.orchestration.worker.process import unheard_of
from aaiclick.store.leases import Lease
from aaiclick.store.supervision import Held

NOW = 100.0


@pytest.mark.parametrize(
    ("age_seconds", "asked", "known", "lost"),
    [
        (5.0, [], set(), True),
        (0.1, [], set(), False),  # its answer may have come while the queue was asked
        (5.0, [], {(1, 2)}, False),
        (5.0, [], {(1, 1)}, True),  # another attempt
        (5.0, [99.0], set(), True),  # the two that talk now asked for others
        (5.0, [99.0, 98.0], set(), True),
        (5.0, [99.0, 94.0], set(), False),  # it may be one of those that are waited for
    ],
)
def test_what_was_claimed_before_any_open_question(age_seconds, asked, known, lost):
    lease = Lease(1, 2, uuid4())
    assert unheard_of([Held(lease, False, age_seconds)], known, asked, NOW) == ([lease] if lost else [])
