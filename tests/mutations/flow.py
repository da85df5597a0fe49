"""Mutations of waits, approvals, children, limits, debounced items, cached results, schedules and Coalesce."""

from __future__ import annotations

from tests.mutations import Mutation
from tests.mutations.engine import ENGINE, SCHEMA, SQL

WAITS = f"{ENGINE}/test_wait_interleavings.py"
FLOW = f"{ENGINE}/test_flow_interleavings.py"
FAULTS = f"{ENGINE}/test_fault_scenarios.py::test_fault_at_failpoint_is_atomic"

ITEMS = f"{ENGINE}/test_waits.py"
ID_TEXT = "~ '^([0-9]{1,18}|[1-8][0-9]{18})$'"

FLOW_MUTATIONS = (
    Mutation(
        "flow: arguments of turns are text of their submitters", f"{SQL}/waits.sql",
        f"'wait_for_turn' AND kwargs ->> 'job_id' {ID_TEXT} THEN", "'wait_for_turn' THEN",
        (f"{ITEMS}::test_item_with_the_type_of_turns_disturbs_no_other_task",),
    ),
    Mutation(
        "flow: the end of a job does not cast arguments", SCHEMA,
        f"WHEN t.kwargs ->> 'job_id' {ID_TEXT} THEN", "WHEN true THEN",
        (f"{ITEMS}::test_limited_job_with_a_forged_turn_ends",),
    ),
    Mutation(
        "flow: the lock of event names", f"{SQL}/waits.sql", "SELECT pg_advisory_xact_lock(1633773924, k.lock) FROM (",
        "SELECT k.lock FROM (", (f"{WAITS}::test_event_before_after_and_with_the_wait",),
    ),
    Mutation(
        "flow: the state of an approval", "aaiclick/store/engine/approvals.py",
        'if approval.state != "waiting":', "if False:",
        (f"{WAITS}::test_approval_is_decided_once",),
    ),
    Mutation(
        "flow: the lock of an approval", "aaiclick/store/engine/approvals.py",
        '            await connection.execute(statement("lock_approval"), approval_id)\n', "",
        (f"{WAITS}::test_approval_is_decided_once",),
    ),
    Mutation(
        "flow: the cancellation of a parent", "aaiclick/store/engine/new_jobs.py",
        'if row is None or row["cancelled"]:', "if row is None:",
        (f"{FLOW}::test_child_job_is_cancelled_with_its_parent",),
    ),
    Mutation(
        "flow: the rate of a key", f"{SQL}/claim_tasks_fair.sql", "UNION ALL SELECT id FROM rated WHERE fits))",
        "UNION ALL SELECT id FROM rated))",
        (f"{ENGINE}/test_rates.py::test_tasks_above_the_rate_are_held_until_the_period_is_over",),
    ),
    Mutation(
        "flow: the claim of a debounced item", f"{SQL}/submit.sql", "WHERE t.attempt = 0 AND t.readiness IS NOT NULL\n",
        "WHERE true\n", (f"{FLOW}::test_debounced_payload_is_claimed_once",),
    ),
    Mutation(
        "flow: the age of a cached result", f"{SQL}/result_cache.sql",
        "t.completed_at > now() - $6 * interval '1 second'", "true",
        ("tests/integration/worker/test_result_cache.py::test_result_expires",),
    ),
    Mutation(
        "flow: the lock of limited jobs", f"{SQL}/submit.sql",
        "SELECT pg_advisory_xact_lock(hashtextextended('job:' || $1::uuid || ':' || $2, 0))",
        "SELECT $1::uuid, $2::text", (f"{FLOW}::test_limited_jobs_run_one_at_a_time",),
    ),
    Mutation(
        "flow: the turn behind a cancelled job", SCHEMA, "WHILE NEW.concurrency IS NOT NULL LOOP", "WHILE false LOOP",
        (f"{FLOW}::test_turn_behind_a_cancelled_job_waits_for_the_running_one",),
    ),
    Mutation(
        "flow: the key of a nominal time", "aaiclick/orchestration/scheduled_runs.py",
        """f"schedule:{schedule['id']}:{moment}\"""", """f"{cause}:{schedule['id']}:{moment}\"""",
        (f"{FLOW}::test_each_nominal_time_starts_one_run",),
    ),
    Mutation(
        "flow: the claim of a coalesced update", f"{SQL}/events.sql",
        "AND t.attempt = 0 AND t.readiness IN ('HELD', 'READY')", "", (f"{FLOW}::test_coalesced_update_is_not_lost",),
    ),
    Mutation(
        "flow: handlers of cleared tasks", f"{SQL}/list_downstream.sql",
        "WHEN 'group' THEN 'behind' ELSE 'task' END AS kind", "WHEN 'task' THEN 'task' ELSE 'behind' END AS kind",
        (f"{FAULTS}[clear:handlers.after-error]",),
    ),
)  # fmt: skip
