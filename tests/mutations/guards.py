"""Mutations of the guards of code, outages, cancellation, events, sources, health, metrics and logs."""

from __future__ import annotations

from tests.mutations import Mutation
from tests.mutations.engine import SQL

INITIAL_SQL = "aaiclick/store/migrations/versions/0001_initial.sql"
RESOLVER = "aaiclick/orchestration/worker/entrypoints.py"
OWN_CODE = "aaiclick/orchestration/worker/own_code_detection.py"
OUTAGES = "aaiclick/orchestration/worker/outages.py"
FAILED_ATTEMPTS = "aaiclick/orchestration/worker/failure_outcomes.py"
PUBLISHING = "aaiclick/orchestration/worker/result_publishing.py"
LOGS = "aaiclick/orchestration/worker/logs.py"
ROUTER = "aaiclick/store/catalog/event_routing.py"
REAPER = "aaiclick/orchestration/loops/reaper.py"
ENTRYPOINTS = "tests/unit/worker/test_entrypoints.py"
RELEASES = "tests/integration/engine/test_releases.py"
OUTCOMES = "tests/integration/engine/test_acknowledge.py"
CANCELLED = f"{OUTCOMES}::test_completion_after_an_acknowledged_cancel_is_cancelled"
EVENTS = "tests/integration/catalog/test_event_routing.py"
LEASES = "tests/integration/catalog/test_task_leases.py"
OF_DEFINITION = f"{LEASES}::test_claim_and_heartbeats_use_the_lease_of_the_definition"
SOURCES = "tests/integration/catalog/test_source_state.py"
METRICS = "tests/integration/server/test_metrics.py"
MAINTENANCE = "tests/integration/engine/test_maintenance.py"
STOP = "tests/unit/worker/test_supervisor.py"
REFERENCES = "tests/integration/lifecycle/test_table_references.py"
GATE = "aaiclick/catalog/execution/data_test_gate.py"
DATA_TESTS = "tests/integration/catalog/test_data_tests.py"
TEST_VISIBILITY = "tests/integration/catalog/test_data_test_visibility.py"
HEALTH = "tests/integration/server/test_health.py::test_health_check_names_the_failing_check"

ADMITS = """\
        if not self._is_allowed(module_name, shared):
            raise self._not_allowed_error(entrypoint, module_name, shared)
        function = _load_attribute("""
RELEASE_CANCELLED = """\
    \"\"\"Outcome of an attempt that raised an exception.\"\"\"
    if isinstance(error, asyncio.CancelledError) and running.stop_reason is None:
        return running.claim.lease
"""
WRITE_BUFFERED = """\
_buffer = bytearray()


def _write_all(handle: int, data: bytes) -> None:
    _buffer.extend(data)
    if len(_buffer) < 8192:
        return
    data = bytes(_buffer)
    _buffer.clear()
    while data:
"""

GUARD_MUTATIONS = (
    # Sessions and tables
    Mutation(
        "sessions: the leader ends stalled ones", "aaiclick/orchestration/loops/leader.py",
        "if stalled := await end_stalled_sessions(connection):", "if stalled := 0:",
        (f"{MAINTENANCE}::test_leader_ends_the_stalled_session_that_holds_the_election",),
    ),
    Mutation(
        "sessions: stalled ones are ended", f"{SQL}/sessions.sql", "FILTER (WHERE pg_terminate_backend(pid))", "",
        (f"{MAINTENANCE}::test_session_stalled_between_parse_and_execute_is_ended",),
    ),
    Mutation(
        "sessions: the time without a message", f"{SQL}/sessions.sql", "state_change < clock_timestamp() -",
        "state_change < clock_timestamp() - 0 *",
        (f"{MAINTENANCE}::test_session_stalled_between_parse_and_execute_is_ended",),
    ),
    Mutation(
        "sessions: idle ones are left alone", f"{SQL}/sessions.sql", "AND state = 'active' AND", "AND",
        (f"{MAINTENANCE}::test_idle_and_working_sessions_are_left_alone",),
    ),
    Mutation(
        "sessions: the longer time of COPY", f"{SQL}/sessions.sql", "query ILIKE 'COPY %' THEN $2::float8",
        "query ILIKE 'COPY %' THEN 0 * $2::float8", (f"{MAINTENANCE}::test_copy_has_longer_timeout",),
    ),
    Mutation(
        "sessions: a stop closes connections before it waits", "aaiclick/orchestration/worker/supervisor.py",
        """\
                connection.close()
            _, pending = await asyncio.wait(pending, timeout=RETRY_SECONDS)
""",
        """\
                pass
            _, pending = await asyncio.wait(pending, timeout=RETRY_SECONDS)
""",
        (f"{STOP}::test_stop_repeats_a_cancellation_that_a_failed_rollback_replaced",),
    ),
    Mutation(
        "sessions: a stop repeats the cancellation", "aaiclick/orchestration/worker/supervisor.py",
        "while pending:\n            for task in pending:", "if pending:\n            for task in pending:",
        (f"{STOP}::test_stop_repeats_a_cancellation_that_a_failed_rollback_replaced",),
    ),
    Mutation(
        "tables: names registered by other organisations", f"{SQL}/tables.sql", "AND r.org_id <> t.org_id) AS held",
        "AND r.org_id <> t.org_id AND false) AS held",
        (f"{REFERENCES}::test_name_registered_by_another_organisation_is_not_reserved",),
    ),
    # Entrypoints
    Mutation(
        "entrypoints: modules below the worker's directory", OWN_CODE,
        " or not real.is_relative_to(self._directory):", ":",
        (f"{ENTRYPOINTS}::test_code_of_the_interpreter_and_of_packages_is_refused",
         f"{ENTRYPOINTS}::test_symbolic_links_do_not_bring_code_below_the_directory"),
    ),
    Mutation(
        "entrypoints: installed packages below the directory", OWN_CODE,
        "real.is_file() and not any(self._is_installed(path) for path in {file.absolute(), real})", "real.is_file()",
        (f"{ENTRYPOINTS}::test_virtual_environments_below_the_directory_are_refused",
         f"{ENTRYPOINTS}::test_a_target_directory_of_pip_is_refused"),
    ),
    Mutation(
        "entrypoints: directories that servers write to", OWN_CODE,
        "path for path in data if path not in _with_parents(self._directory)", "path for path in ()",
        (f"{ENTRYPOINTS}::test_files_that_servers_write_are_not_code",),
    ),
    Mutation(
        "entrypoints: a second organisation closes unnamed modules", RESOLVER,
        "if shared or self._own_code is None", "if self._own_code is None",
        (f"{ENTRYPOINTS}::test_second_organisation_disallows_cached_functions",),
    ),
    Mutation(
        "entrypoints: the cache knows whether organisations share", RESOLVER, "key = task_type, entrypoint, shared",
        "key = task_type, entrypoint, False", (f"{ENTRYPOINTS}::test_second_organisation_disallows_cached_functions",),
    ),
    Mutation(
        "entrypoints: the number of organisations, `claim_tasks`", f"{SQL}/claim_tasks.sql",
        "(SELECT count(*) > 1 FROM (SELECT FROM orgs LIMIT 2) o) AS shared", "false AS shared",
        ("tests/integration/worker/test_outcomes.py::test_second_organisation_disallows_unnamed_modules",),
    ),
    Mutation(
        "entrypoints: imported attributes", RESOLVER, "if not self._is_allowed(defining_module(function), shared):",
        "if False:", (f"{ENTRYPOINTS}::test_imported_attributes_are_refused",),
    ),
    Mutation(
        "entrypoints: __main__", RESOLVER, 'if module_name.partition(".")[0] == "__main__":', "if False:",
        (f"{ENTRYPOINTS}::test_main_cannot_be_named",),
    ),
    Mutation(
        "entrypoints: modules are judged before they are imported", RESOLVER, ADMITS,
        "        function = _load_attribute(",
        (ENTRYPOINTS,),
    ),
    Mutation(
        "entrypoints: modules are judged again after they were imported", RESOLVER,
        "if not self._is_allowed(module_name, shared):  # the import may have", "if False:  #",
        (f"{ENTRYPOINTS}::test_module_that_replaces_itself_is_checked_again",),
    ),
    Mutation(
        "entrypoints: handlers of installed packages", RESOLVER,
        "if self._is_allowed(module_name, shared) or (self._in_process and not shared):", "if True:",
        (f"{ENTRYPOINTS}::test_a_handler_of_an_installed_package_must_be_named",),
    ),
    # Uncharged ends
    Mutation(
        "releases: the limit of uncharged ends, `fail_tasks`", f"{SQL}/fail_tasks.sql",
        "WHEN r.exhausted OR (c.charged",
        "WHEN (c.charged", (f"{RELEASES}::test_uncharged_ends_for_more_than_a_day_make_a_dead_letter",),
    ),
    Mutation(
        "releases: the time that uncharged ends must span", f"{SQL}/fail_tasks.sql",
        "- $14::float8 * interval '1 second', false)", "- 0 * $14::float8 * interval '1 second', false)",
        (f"{RELEASES}::test_long_outage_fails_no_job",),
    ),
    Mutation(
        "releases: the number of uncharged ends", f"{SQL}/fail_tasks.sql", "count(*) >= $13::int",
        "count(*) >= 0 * $13::int",
        (f"{RELEASES}::test_few_uncharged_ends_in_more_than_a_day_are_no_dead_letter",),
    ),
    Mutation(
        "releases: the number of releases", f"{SQL}/leases.sql", "(r.times >= $2::int",
        "(r.times >= 0 * $2::int",
        (f"{RELEASES}::test_few_uncharged_ends_in_more_than_a_day_are_no_dead_letter",),
    ),
    Mutation(
        "releases: the back-off of uncharged ends", f"{SQL}/fail_tasks.sql",
        "least(g.delay * power(2::float8, least(r.times, 62)), greatest(g.delay, $15::float8))",
        "least(g.delay, greatest(g.delay, $15::float8))",
        (f"{RELEASES}::test_delays_of_uncharged_ends_double_up_to_a_cap",),
    ),
    Mutation(
        "releases: the back-off of releases, `release_tasks`", f"{SQL}/release_tasks.sql", "AND r.times >= $5::int",
        "AND r.times < 0 * $5::int",
        (f"{RELEASES}::test_repeated_releases_are_delayed_and_limited",),
    ),
    Mutation(
        "releases: the limit of releases", "aaiclick/store/engine/acknowledge.py",
        'exhausted = {row["id"] for row in rows}',
        "exhausted = set[int]()",
        (f"{RELEASES}::test_repeated_releases_are_delayed_and_limited",),
    ),
    Mutation(
        "releases: the grace after a start of PostgreSQL", REAPER,
        "if await read_uptime_seconds(connection) < restart_grace_seconds:", "if False:",
        (f"{RELEASES}::test_nothing_is_reaped_right_after_a_start_of_postgresql",),
    ),
    # Outages
    Mutation(
        "outages: the address of the error", OUTAGES, "error.address in addresses", "error.address",
        ("tests/unit/worker/test_outages.py",),
    ),
    Mutation(
        "outages: errors of other services", OUTAGES,
        "isinstance(error, AaiclickError) and error.address in addresses",
        'isinstance(error, OSError) or getattr(error, "endpoint", None) in endpoints',
        ("tests/integration/worker/test_outages.py::test_an_unreachable_service_of_the_task_itself_is_charged",),
    ),
    Mutation(
        "outages: every exception of a group", OUTAGES, "if all(member is not None", "if any(member is not None",
        ("tests/unit/worker/test_outages.py",),
    ),
    Mutation(
        "outages: attempts that end in one are not charged", FAILED_ATTEMPTS,
        'replace(released, charged=False, outcome="RELEASED"', 'replace(released, outcome="RELEASED"',
        ("tests/integration/worker/test_outages.py::test_an_outage_in_the_code_of_a_task_is_not_charged",),
    ),
    Mutation(
        "outages: a generator is published once", PUBLISHING, "if outage is None or not _is_repeatable(value):",
        "if outage is None:", ("tests/integration/worker/test_outages.py::test_a_generator_is_not_published_twice",),
    ),
    Mutation(
        "exceptions: CancelledError is charged", FAILED_ATTEMPTS,
        '    """Outcome of an attempt that raised an exception."""\n', RELEASE_CANCELLED,
        ("tests/integration/worker/test_exceptions.py::test_a_cancelled_error_is_charged_and_retried_within_limits",),
    ),
    # Cancellation and clocks
    Mutation(
        "cancel: the request in `complete_tasks`", f"{SQL}/complete_tasks.sql",
        "num_nonnulls(t.group_id, t.concurrency_key, t.cancel_requested_at)",
        "num_nonnulls(t.group_id, t.concurrency_key)", (CANCELLED,),
    ),
    Mutation(
        "cancel: the request in `complete_linked_tasks`", "aaiclick/store/migrations/versions/0001_initial.sql",
        "num_nonnulls(t.group_id, t.concurrency_key, t.added_by, t.cancel_requested_at)",
        "num_nonnulls(t.group_id, t.concurrency_key, t.added_by)", (CANCELLED,),
    ),
    Mutation(
        "cancel: the request in `finish_tasks`", f"{SQL}/finish_tasks.sql",
        "AND num_nonnulls(t.cancel_requested_at) < 1", "",
        (CANCELLED,),
    ),
    Mutation(
        "cancel: the request of a task that returned tasks", "aaiclick/store/engine/dynamic_tasks.py",
        'if row["cancelled"]:',
        "if False:",
        ("tests/integration/engine/test_dynamic_tasks.py::test_tasks_returned_after_an_acknowledged_cancel_are_discarded",),
    ),
    Mutation(
        "clock: leases after PostgreSQL's clock was set back", REAPER,
        "if rebased := await rebase_heartbeats(connection, now=now):", "if rebased := 0:",
        (f"{OUTCOMES}::test_clock_set_back_expires_leases_of_dead_worker",),
    ),
    Mutation(
        "clock: terms after PostgreSQL's clock was set back", "aaiclick/store/engine/workers.py",
        'await connection.execute(statement("bound_terms"), now, term_seconds)', "pass",
        (f"{OUTCOMES}::test_clock_set_back_extends_leadership_by_one_term_at_most",),
    ),
    Mutation(
        "clock: rates after PostgreSQL's clock was set back", f"{SQL}/claim_tasks_fair.sql",
        "rate_at > (SELECT now FROM clock) THEN b.most", "rate_at IS NULL AND false THEN b.most",
        ("tests/integration/engine/test_claims.py::test_a_clock_set_back_does_not_stop_a_rate",),
    ),
    # Events
    Mutation(
        "events: a failing batch is split", ROUTER,
        '_logger.warning("A batch of events could not be routed; it is split to find the failing ones.")', "raise",
        (f"{EVENTS}::test_poison_payload_does_not_block_other_events",),
    ),
    Mutation(
        "events: an attempt is charged, `charge_event`", f"{SQL}/events.sql",
        "SET attempts = attempts + 1, last_error", "SET last_error",
        (f"{EVENTS}::test_failing_event_is_retried_after_back_off",),
    ),
    Mutation(
        "events: Failed after five attempts", f"{SQL}/events.sql",
        "status = CASE WHEN attempts + 1 >= $3::int THEN 'Failed' ELSE 'Pending' END::outbox_status,\n"
        "    processed_at = CASE WHEN attempts + 1 >= $3::int",
        "processed_at = CASE WHEN attempts + 1 < 0 * $3::int",
        (f"{EVENTS}::test_poison_payload_does_not_block_other_events",),
    ),
    Mutation(
        "events: the back-off", f"{SQL}/events.sql", "+ $4::float8 * power(", "+ 0 * $4::float8 * power(",
        (f"{EVENTS}::test_failing_event_is_retried_after_back_off",),
    ),
    Mutation(
        "events: the job of a failed event ends", ROUTER, 'if status == "Failed":', "if False:",
        (f"{EVENTS}::test_poison_payload_does_not_block_other_events",),
    ),
    Mutation(
        "events: errors of the connection charge none", ROUTER,
        "    except INSTALLATION_ERRORS:\n        raise\n", "",
        (f"{EVENTS}::test_errors_of_the_connection_charge_no_event",),
    ),
    Mutation(
        "events: the cursor in the dedupe key", ROUTER, "f'event-{event}' if cursor is None else cursor",
        "f'event-{event}'", (f"{EVENTS}::test_an_update_delivered_twice_makes_one_task",),
    ),
    Mutation(
        "events: tasks with a known dedupe key are left out", "aaiclick/store/catalog/dataset_events.py",
        "if key is None or key not in used_keys:", "if True:",
        (f"{EVENTS}::test_an_update_delivered_twice_makes_one_task",
         f"{EVENTS}::test_a_partition_delivered_twice_makes_one_task"),
    ),
    # Leases of definitions, emissions, states of sources
    Mutation(
        "lease_seconds: `claim_tasks`", f"{SQL}/claim_tasks.sql", "coalesce(lease_seconds, $4::float8)", "$4::float8",
        (OF_DEFINITION,),
    ),
    Mutation(
        "lease_seconds: `claim_tasks_fair`", f"{SQL}/claim_tasks_fair.sql", "coalesce(lease_seconds, $4::float8)",
        "$4::float8",
        (OF_DEFINITION,),
    ),
    Mutation(
        "lease_seconds: `renew_leases`", f"{SQL}/renew_leases.sql", "coalesce(lease_seconds, $4::float8)", "$4::float8",
        (OF_DEFINITION,),
    ),
    Mutation(
        "lease_seconds: `extend_worker_leases`", f"{SQL}/leases.sql", "coalesce(lease_seconds, $2::float8)",
        "$2::float8", (OF_DEFINITION,),
    ),
    Mutation(
        "lease_seconds: routed tasks", "aaiclick/store/catalog/dataset_events.py",
        'definition["heartbeat_timeout_seconds"]',
        "None", (f"{LEASES}::test_routed_tasks_have_the_lease_of_their_definition",),
    ),
    Mutation(
        "lease_seconds: short leases are renewed", f"{SQL}/leases.sql",
        "AND lease_expires_at < now() + lease_seconds", "AND lease_expires_at < now() - lease_seconds",
        (f"{LEASES}::test_short_leases_are_renewed_when_a_third_is_used_up",),
    ),
    Mutation(
        "sources: the fence of emissions, `lock_emitting_lease`", f"{SQL}/leases.sql",
        "SELECT id, org_id, job_id FROM tasks WHERE id = $1 AND attempt = $2 AND lease_token = $3",
        "SELECT id, org_id, job_id FROM tasks WHERE id = $1 AND ($2::int, $3::uuid) IS NOT NULL",
        ("tests/integration/catalog/test_emit.py::test_a_lost_lease_emits_nothing",),
    ),
    Mutation(
        "sources: the trigger that sets their status", INITIAL_SQL,
        "PERFORM aaiclick_set_source_status(NEW.definition_id, NEW.id, now()); RETURN NULL;", "RETURN NULL;",
        (f"{SOURCES}::test_a_source_is_running_only_while_a_worker_runs_it",),
    ),
    Mutation(
        "sources: the trigger waits for no lock", INITIAL_SQL,
        "WHERE f.id = source_id FOR NO KEY UPDATE SKIP LOCKED;", "WHERE f.id = source_id FOR NO KEY UPDATE;",
        (f"{SOURCES}::test_claim_does_not_wait_for_definition_lock",),
    ),
    # Data tests
    Mutation(
        "data tests: rows that fail a blocking test are not published", GATE,
        "            if blocked:\n", "            if False:\n",
        (f"{DATA_TESTS}::test_failed_test_blocks_the_update_and_fails_the_task_at_once",),
    ),
    Mutation(
        "data tests: texts that name hidden datasets are hidden", "aaiclick/store/catalog/data_test_results.py",
        "_redact_test(row) if row.task_id in hidden else row", "row",
        (f"{TEST_VISIBILITY}::test_tests_that_read_hidden_datasets_do_not_name_them",),
    ),
    Mutation(
        "task page: previews are cached by reader", "aaiclick/server/ui/pages/task.py",
        '("rows", reader, name, table)', '("rows", reader.org_id, name, table)',
        (f"{TEST_VISIBILITY}::test_preview_that_an_admin_has_loaded_is_not_shown_to_others",),
    ),
    Mutation(
        "data tests: references compare whole values", "aaiclick/data/compile/data_test_queries.py",
        "{lossy_cast and f' OR {lossy_cast}'}", "",
        (f"{DATA_TESTS}::test_reference_is_found_by_the_whole_value",),
    ),
    Mutation(
        "data tests: rows of other updates are read", GATE,
        'remaining = self._remaining_select(staged) if self._reads_remaining() else ""', 'remaining = ""',
        (f"{DATA_TESTS}::test_appended_rows_are_tested_against_the_rows_that_stay",),
    ),
    Mutation(
        "data tests: run again after concurrent publications", GATE,
        "self.location.publishes if self._reads_remaining() else None", "None",
        (f"{DATA_TESTS}::test_rows_published_during_the_tests_are_tested_too",),
    ),
    Mutation(
        "data tests: run again after a publication that was not counted", "aaiclick/store/catalog/definition_runs.py",
        'if intent["table"] is not None and intent["lease"] != lease.token:', "if False:",
        (f"{DATA_TESTS}::test_rows_of_an_uncounted_publication_are_tested_too",),
    ),
    Mutation(
        "data tests: an announced publication is awaited", "aaiclick/store/catalog/definition_runs.py",
        'if intent["live"]:', "if False:", (f"{DATA_TESTS}::test_announced_publication_is_awaited_or_settled",),
    ),
    Mutation(
        "data tests: staged rows of a dead attempt are dropped", "aaiclick/store/catalog/definition_runs.py",
        'await drop_table(intent["table"])', "pass",
        (f"{DATA_TESTS}::test_announced_publication_is_awaited_or_settled",),
    ),
    # Health, metrics, logs
    Mutation(
        "health: the heartbeats of workers", f"{SQL}/metrics.sql",
        "AND last_heartbeat > now() - $2::float8 * interval '1 second') AS workers", ") AS workers", (HEALTH,),
    ),
    Mutation(
        "health: events that failed", "aaiclick/store/engine/health.py", 'Check("events", row["unrouted"] == 0',
        'Check("events", True', (HEALTH,),
    ),
    Mutation(
        "metrics: the trigger for deleted tasks", INITIAL_SQL,
        "CREATE TRIGGER add_metric_counts AFTER DELETE ON tasks REFERENCING OLD TABLE AS gone\n"
        "FOR EACH STATEMENT EXECUTE FUNCTION aaiclick_add_metric_counts();", "",
        (f"{METRICS}::test_counters_do_not_fall_when_retention_deletes",),
    ),
    Mutation(
        "metrics: the trigger for tasks that start over", INITIAL_SQL,
        "CREATE TRIGGER add_reopened_counts AFTER UPDATE ON tasks FOR EACH ROW\nWHEN (OLD.completed_at IS NOT NULL",
        "CREATE TRIGGER add_reopened_counts AFTER UPDATE ON tasks FOR EACH ROW\n"
        "WHEN (false AND OLD.completed_at IS NOT NULL",
        (f"{METRICS}::test_counters_do_not_fall_when_tasks_restart",),
    ),
    Mutation(
        "logs: written without a buffer", LOGS,
        "def _write_all(handle: int, data: bytes) -> None:\n    while data:\n", WRITE_BUFFERED,
        ("tests/integration/worker/test_task_logs.py::test_log_of_a_killed_process_has_its_last_line",),
    ),
)  # fmt: skip
