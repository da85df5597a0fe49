"""The matrix of faults: at each named commit, killed, failing and slow, before it and after it, with nobody told.

Before: nothing has happened. After: everything has. Either way the invariants hold, and saying the same again makes it
so. `tests/integration/worker/test_commits.py` does some of this to whole workers.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import re
import signal
from pathlib import Path

import pytest
import pytest_asyncio

import aaiclick
from aaiclick import faults
from aaiclick.store.doctor import check_invariants
from aaiclick.store.engine import connect
from tests.integration.engine.points import SCENARIOS

HOW = ("before-kill", "before-error", "before-delay:0.01", "after-kill", "after-error")
CASES = [(f"{name}.{moment}", mode) for name in SCENARIOS for moment, mode in (how.split("-") for how in HOW)]
hit: set[tuple[str, str]] = set()
UNNAMED = {
    "store/api_role", "store/catalog_events", "store/event_routing", "store/keys", "store/org_secrets",
    "store/pooler", "orchestration/loops/scheduler",
}  # fmt: skip
"""At the start of a server; a savepoint, so that a task that is there already costs no other; a savepoint for each half
of a batch that is split; of the very first key; of a rotation, whose key file holds the old and the new key until the
commit; one that only reads; a savepoint, so that a source that cannot start
keeps no other from it.
"""


def named_commits() -> list[str]:
    """Every name in the code, as often as it is there."""
    call = re.compile(r'faults\.(?:statement|transaction)\((?:\w+, )?"(\w+)"\)')
    sources = Path(aaiclick.__file__).parent.rglob("*.py")
    return sorted(name for source in sources for name in call.findall(source.read_text()))


def test_every_named_commit_has_a_scenario():
    """And is in one place: else it would not be known which of them was hit."""
    assert named_commits() == sorted(SCENARIOS)


def test_every_transaction_has_a_name():
    package = Path(aaiclick.__file__).parent
    sources = {str(path.relative_to(package).with_suffix("")): path.read_text() for path in package.rglob("*.py")}
    unnamed = {name for name, text in sources.items() if "connection.transaction()" in text}
    assert {name for name in unnamed if not name.startswith("chaos/")} - {"faults"} == UNNAMED


@pytest.fixture(scope="module")
def processes():
    """Processes that may be killed, each forked from one that has imported everything."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.integration.engine.points"])
    return context


async def act(target, place: str, state, fault: str, marks: str) -> None:
    db = await connect(target)
    faults.arm(f"{place}={fault}" if fault else "", marks)
    try:
        await SCENARIOS[place.partition(".")[0]].act(db, state)
    finally:
        faults.arm("")
        db.terminate()


def act_and_die(*arguments) -> None:
    asyncio.run(act(*arguments))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def watcher(aaiclick_stack, _aaiclick_template):
    """One session for all tests: what takes long is a session's first use of each statement."""
    name = aaiclick_stack.run(aaiclick_stack.take_database())
    target = aaiclick_stack.lease.postgres().with_database(name)
    db = await connect(target)
    yield target, db
    await db.close()
    aaiclick_stack.run(aaiclick_stack.leave_database(name))


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("place", "mode"), CASES)
async def test_a_commit_has_happened_or_not(watcher, processes, tmp_path, place, mode):
    name, _, moment = place.partition(".")
    scenario = SCENARIOS[name]
    target, db = watcher
    assert await db.fetchval("SELECT aaiclick_testing.clean()")
    state = await scenario.prepare(db)
    assert not await scenario.done(db, state)
    order = (target, place, state, mode, str(tmp_path))
    if mode == "kill":
        process = processes.Process(target=act_and_die, args=order)
        process.start()
        await asyncio.to_thread(process.join)
        assert process.exitcode == -signal.SIGKILL
    elif mode == "error":
        with pytest.raises(faults.FaultError):
            await act(*order)
    else:
        await act(*order)
    assert (tmp_path / place).exists()
    hit.add((place, mode))
    happened = moment == "after" or mode.startswith("delay") or scenario.happened_before
    assert await scenario.done(db, state) == happened
    assert await check_invariants(db) == []
    await act(target, place, state, "", "")
    assert await scenario.done(db, state)
    assert await check_invariants(db) == []


def test_all_were_hit(request):
    """This file runs in one process, in its order; who chose among the tests above has not hit all."""
    chosen = sum(item.name.startswith("test_a_commit_has_happened") for item in request.session.items)
    if chosen < len(CASES):
        pytest.skip("not all were asked for")
    assert hit == set(CASES)
