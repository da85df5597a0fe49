"""Fault matrix: kill, error or delay before and after each failpoint, without a response to the caller.

A killed process and a raised error end the transaction in the same way, so each failpoint has one of them before its
commit and the other one after it; `make conformance` runs all.

Before the commit nothing has happened, after it everything has. The invariants hold either way, and a repetition
completes the action. `tests/integration/worker/test_commit_failpoints.py` does some of this to whole workers.
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
from aaiclick import failpoints
from aaiclick.store.engine.invariants import check_invariants
from aaiclick.store.postgres_connections import connect
from tests.cases import ALL_CASES
from tests.integration.engine.flow_fault_scenarios import SCENARIOS
from tests.integration.engine.killed_process import act, act_and_die

HOW = ("before-kill", "after-error", "before-error", "after-kill", "before-delay:0.01")


def fault_cases() -> list[tuple[str, str]]:
    """Two faults for each scenario, one before and one after the commit; a delay for every fifth; or all five."""
    cases: list[tuple[str, str]] = []
    for number, name in enumerate(SCENARIOS):
        chosen = HOW if ALL_CASES else HOW[2 * (number % 2) :][:2] + HOW[4:] * (number % 5 == 0)
        cases += [(f"{name}.{moment}", mode) for moment, mode in (how.split("-") for how in chosen)]
    return cases


CASES = fault_cases()
hit: set[tuple[str, str]] = set()
UNNAMED = {
    "store/tenancy/postgres_api_role", "store/catalog/dataset_events", "store/catalog/event_routing",
    "store/tenancy/api_keys",
    "store/tenancy/secrets", "store/connection_pooler_checks", "orchestration/loops/scheduler", "server/mcp",
    "backup/consistent_snapshot", "catalog/execution/postgres_operators",
}  # fmt: skip
"""Transactions without a failpoint: at the start of a server; savepoints for existing tasks and for halves of a split
batch; the very first key; the rotation of keys, during which the key file has both keys; read-only transactions; a
savepoint per source of the scheduler; the use of a confirmation before its change; the snapshot and the locks of
a backup; a write into a database of the user.
"""


def named_commits() -> list[str]:
    """Return the name of every failpoint in the code, once per occurrence."""
    call = re.compile(r'failpoints\.(?:statement|transaction)\((?:\w+, )?"(\w+)"\)')
    sources = Path(aaiclick.__file__).parent.rglob("*.py")
    return sorted(name for source in sources for name in call.findall(source.read_text()))


def test_every_failpoint_has_a_scenario():
    """Names are unique, so that a hit identifies its failpoint."""
    assert named_commits() == sorted(name for name in SCENARIOS if ":" not in name)


def test_every_transaction_has_a_failpoint():
    package = Path(aaiclick.__file__).parent
    sources = {str(path.relative_to(package).with_suffix("")): path.read_text() for path in package.rglob("*.py")}
    unnamed = {name for name, text in sources.items() if "connection.transaction()" in text}
    assert {name for name in unnamed if not name.startswith("chaos/")} - {"failpoints"} == UNNAMED


@pytest.fixture(scope="module")
def processes():
    """Processes that may be killed, each forked from one that has imported everything."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([act_and_die.__module__])
    return context


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def watcher(aaiclick_stack, _aaiclick_template):
    """One session for all tests, since the first use of each statement in a session is slow."""
    name = aaiclick_stack.run(aaiclick_stack.take_database())
    endpoint = aaiclick_stack.connection.postgres_endpoint().with_database(name)
    db = await connect(endpoint)
    yield endpoint, db
    await db.close()
    aaiclick_stack.run(aaiclick_stack.return_database(name))


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("failpoint", "mode"), CASES)
async def test_fault_at_failpoint_is_atomic(watcher, processes, tmp_path, failpoint, mode):
    name, _, moment = failpoint.partition(".")
    scenario = SCENARIOS[name]
    endpoint, db = watcher
    assert await db.fetchval("SELECT aaiclick_testing.clean()")
    state = await scenario.prepare(db)
    assert not await scenario.done(db, state)
    arguments = (endpoint, failpoint, state, mode, str(tmp_path))
    if mode == "kill":
        process = processes.Process(target=act_and_die, args=arguments)
        process.start()
        await asyncio.to_thread(process.join)
        assert process.exitcode == -signal.SIGKILL
    elif mode == "error":
        with pytest.raises(failpoints.FaultError):
            await act(*arguments)
    else:
        await act(*arguments)
    assert (tmp_path / f"{name.partition(':')[0]}.{moment}").exists()
    hit.add((failpoint, mode))
    happened = moment == "after" or mode.startswith("delay") or scenario.happened_before
    assert await scenario.done(db, state) == happened
    assert await check_invariants(db) == []
    await scenario.act(db, state)
    assert await scenario.done(db, state)
    assert await check_invariants(db) == []


def test_all_failpoints_were_hit(request):
    """The tests of this file run in one process, in order; skipped if only some were selected."""
    chosen = sum(item.name.startswith("test_fault_at_failpoint_is_atomic") for item in request.session.items)
    if chosen < len(CASES):
        pytest.skip("not all cases were selected")
    assert hit == set(CASES)
