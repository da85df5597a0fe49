"""Mutations of the queue, of data, of registered locations and of secrets."""

from __future__ import annotations

from tests.mutations import Mutation

SQL = "aaiclick/store/sql"
ENGINE = "tests/integration/engine"
SECRETS = "tests/integration/catalog/test_secrets_run.py"
FOREIGN = "tests/integration/runtimes/test_parquet_files_operator.py"
CLEANUP = "tests/integration/lifecycle/test_table_cleanup.py"
ENDING = "tests/integration/catalog/test_crash_recovery.py::test_repeated_completion_writes_effects_once"
SCHEMA = "aaiclick/store/migrations/versions/0001_initial.sql"
LINKED_FENCE = "AND t.attempt = g.attempt AND t.lease_token = g.token\n          AND t.job_id = ANY (eligible)"
FENCE = "AND t.attempt = g.attempt AND t.lease_token = g.token"
END = """\
        async with failpoints.transaction(connection, "end"):
            return await _end_attempts(connection, successes, failures, releases, exclusive, now)
"""
END_THEN_EMIT = """\
        class Later:
            kept = []
            def __getattr__(self, name):
                return getattr(connection, name)
            async def fetchval(self, text, *values):
                if text != statement("emit_events"):
                    return await connection.fetchval(text, *values)
                self.kept.append(values)
        later = Later()
        async with failpoints.transaction(connection, "end"):
            ended = await _end_attempts(later, successes, failures, releases, exclusive, now)
        while later.kept:
            await connection.fetchval(statement("emit_events"), *later.kept.pop())
        return ended
"""

ENGINE_MUTATIONS = (
    Mutation(
        "the token in `complete_tasks`", f"{SQL}/complete_tasks.sql", " AND t.lease_token = g.token", "",
        (f"{ENGINE}/test_acknowledge.py",),
    ),
    Mutation(
        "the attempt and the token in `finish_tasks`", f"{SQL}/finish_tasks.sql", FENCE,
        "AND t.lease_token IS NOT NULL",
        (f"{ENGINE}/test_acknowledge.py",),
    ),
    Mutation(
        "the fence in `complete_linked_tasks`", SCHEMA, LINKED_FENCE, "AND t.job_id = ANY (eligible)",
        (f"{ENGINE}/test_acknowledge.py",),
    ),
    Mutation(
        "the graph lock of `complete_linked_tasks`", SCHEMA,
        "PERFORM pg_advisory_xact_lock_shared(j.id) FROM unnest(eligible) AS j (id);", "",
        (f"{ENGINE}/test_interleavings.py",),
    ),
    Mutation(
        "the fence in `fail_tasks`", f"{SQL}/fail_tasks.sql", FENCE, "AND t.lease_token IS NOT NULL",
        (f"{ENGINE}/test_acknowledge.py", f"{ENGINE}/test_leases.py"),
    ),
    Mutation(
        "the fence in `release_tasks`", f"{SQL}/release_tasks.sql", FENCE, "AND t.lease_token IS NOT NULL",
        (f"{ENGINE}/test_leases.py",),
    ),
    Mutation(
        "the fence in `start_tasks`", f"{SQL}/start_tasks.sql", FENCE, "AND t.lease_token IS NOT NULL",
        (f"{ENGINE}/test_leases.py",),
    ),
    Mutation(
        "the fence in `renew_leases`", f"{SQL}/renew_leases.sql", FENCE, "AND t.lease_token IS NOT NULL",
        (f"{ENGINE}/test_leases.py",),
    ),
    Mutation(
        "the fence of additions, `lock_lease`", f"{SQL}/leases.sql",
        "cancelled, queue FROM tasks\nWHERE id = $1 AND attempt = $2 AND lease_token = $3",
        "cancelled, queue FROM tasks\nWHERE id = $1 AND ($2::int, $3::uuid) IS NOT NULL", (f"{ENGINE}/test_leases.py",),
    ),
    Mutation(
        "SKIP LOCKED in `claim_tasks`", f"{SQL}/claim_tasks.sql", "LIMIT $2::int FOR NO KEY UPDATE SKIP LOCKED",
        "LIMIT $2::int FOR NO KEY UPDATE", (f"{ENGINE}/test_claims.py",),
    ),
    Mutation(
        "the row lock in `claim_tasks`", f"{SQL}/claim_tasks.sql", "LIMIT $2::int FOR NO KEY UPDATE SKIP LOCKED",
        "LIMIT $2::int", (f"{ENGINE}/test_claims.py", f"{ENGINE}/test_interleavings.py"),
    ),
    Mutation(
        "the counters' (graph) lock, `lock_jobs`", f"{SQL}/graph.sql",
        "CASE WHEN exclusive THEN pg_advisory_xact_lock(job_id) IS NULL\n"
        "                      ELSE pg_advisory_xact_lock_shared(job_id) IS NULL END",
        "false", (f"{ENGINE}/test_interleavings.py",),
    ),
    Mutation(
        "the reaper's second look at the expiry", f"{SQL}/fail_tasks.sql",
        "(NOT g.expired OR t.lease_expires_at <= coalesce($12::timestamptz, now()))", "true",
        (f"{ENGINE}/test_acknowledge.py",),
    ),
    Mutation(
        "the look at a drop that has begun, `hold_tables`", f"{SQL}/tables.sql",
        "(SELECT name FROM live))\n      AND dropping_at IS NULL ORDER BY", "(SELECT name FROM live)) ORDER BY",
        (CLEANUP,),
    ),
    Mutation(
        "the look at the count, `mark_tables_dropping`", f"{SQL}/tables.sql",
        "refcount <= 0\n      AND (dropping_at", "(dropping_at", (CLEANUP,),
    ),
    Mutation(
        "the second look at the count, which is the lock, `mark_tables_dropping`", f"{SQL}/tables.sql",
        "FOR UPDATE SKIP LOCKED", "", (f"{CLEANUP}::test_reference_to_a_table_being_marked_waits_and_is_refused",),
    ),
    Mutation(
        "the events of a completion", "aaiclick/store/catalog/definition_runs.py",
        "return await emit_events(connection, events)",
        "return await emit_events(connection, [])", (ENDING,),
    ),
    Mutation(
        "putting events into the outbox in the transaction of the completion", "aaiclick/store/engine/acknowledge.py",
        END,
        END_THEN_EMIT, (ENDING,),
    ),
    Mutation(
        "the transaction that takes events out of the outbox", "aaiclick/store/catalog/event_routing.py",
        'async with failpoints.transaction(connection, "route"):', 'async with failpoints.statement("route"):',
        ("tests/integration/catalog/test_crash_recovery.py",),
    ),
    Mutation(
        "the wall between organisations on `tasks`", "aaiclick/store/migrations/versions/0001_initial.sql",
        "CREATE POLICY org ON tasks USING (org_id = aaiclick_org_id());", "CREATE POLICY org ON tasks USING (true);",
        ("tests/integration/server/test_row_level_security.py",),
    ),
    Mutation(
        "publishing range after range on a cluster", "aaiclick/data/runtime/cluster.py",
        "if len(shards) == 1:", "if shards:",
        ("tests/integration/cluster/test_cluster.py",),
    ),
    Mutation(
        "sending rows to ClickHouse once", "aaiclick/data/runtime/clickhouse_client.py",
        "raw_insert(None, None, statement_and_body(), merged)",
        'raw_insert(None, None, b"".join([piece async for piece in statement_and_body()]), merged)',
        ("tests/integration/data/test_insert_retries.py",),
    ),
    Mutation(
        "saying again what PostgreSQL may not have heard", "aaiclick/orchestration/worker/worker_process.py",
        "self._outcomes = outcomes + self._outcomes", "self._outcomes = self._outcomes",
        ("tests/integration/worker/test_commit_failpoints.py",),
    ),
    Mutation(
        "giving back a claim whose answer was lost", "aaiclick/orchestration/worker/worker_process.py",
        "if _attempt_key(row.lease) not in known_attempts and", "if False and",
        ("tests/integration/worker/test_commit_failpoints.py",),
    ),
    Mutation(
        "the organisation's prefixes of registered locations", "aaiclick/catalog/dataset_range_registration.py",
        "if not any(location.startswith(prefix) for prefix in own):", "if False:",
        (f"{FOREIGN}::test_a_location_of_another_organisation_cannot_be_registered",),
    ),
    Mutation(
        "the overlap of registered locations", "aaiclick/store/catalog/datasets.py",
        "if other is not None:", "if False:",
        (f"{FOREIGN}::test_registered_ranges_are_read_together",),
    ),
    Mutation(
        "unfinished files at registered locations", "aaiclick/catalog/execution/parquet_files_operator.py",
        "    if hidden is not None:", "    if False:",
        (f"{FOREIGN}::test_invalid_dataset_fails_with_the_reason",),
    ),
    Mutation(
        "the conflict of registered locations", "aaiclick/store/sql/datasets.sql",
        "ON CONFLICT (dataset_uuid, config_hash, numrange(range_start::numeric, range_end::numeric, '[]')) DO NOTHING",
        "",
        ("tests/integration/catalog/test_dataset_range_registration.py::test_concurrent_registrations_create_one_row",),
    ),
    Mutation(
        "claims before starts", f"{SQL}/finish_tasks.sql",
        "greatest(t.claimed_at, coalesce($7::timestamptz, now()) - g.seconds * interval '1 second')",
        "coalesce($7::timestamptz, now()) - g.seconds * interval '1 second'",
        (f"{ENGINE}/test_acknowledge.py::test_no_attempt_starts_before_it_was_claimed",),
    ),
    Mutation(
        "secrets: the token of the lease, `load_task_secrets`", f"{SQL}/secrets.sql",
        "AND t.lease_token = $3", "AND $3::uuid IS NOT NULL",
        (f"{SECRETS}::test_lost_lease_gets_no_secret",),
    ),
    Mutation(
        "secrets: the organisation as associated data", "aaiclick/store/tenancy/secret_encryption.py",
        "str(org_id), name, host]",
        "name, host]", (f"{SECRETS}::test_a_row_copied_from_another_organisation_cannot_be_decrypted",),
    ),
    Mutation(
        "secrets: the host of each request", "aaiclick/catalog/execution/http_fetch_operator.py",
        "            _check_hosts(request.url, hosts)\n", "",
        (f"{SECRETS}::test_a_bound_secret_is_sent_to_its_host_only",),
    ),
    Mutation(
        "secrets: headers and body of one origin", "aaiclick/catalog/execution/http_fetch_operator.py",
        "if _get_origin(target) == _get_origin(request.url):", "if True:",
        (f"{SECRETS}::test_headers_and_body_of_one_origin_are_not_sent_to_another",),
    ),
    Mutation(
        "secrets: bound ones for http_fetch alone", "aaiclick/store/tenancy/secrets.py",
        'task["operator"] != SENDER or origin_of(task["url"] or "") != secret.host', "False",
        (f"{SECRETS}::test_bound_secret_is_not_given_to_code",),
    ),
    Mutation(
        "secrets: redaction of logs", "aaiclick/orchestration/worker/logs.py",
        "        text = self.redactor.redact(text)\n", "",
        (f"{SECRETS}::test_secrets_are_not_in_logs_errors_or_database",),
    ),
    Mutation(
        "secrets: the organisation of a definition", "aaiclick/orchestration/gateway/attempt.py",
        "definition is not None and definition.org_id == self.org_id", "True",
        (f"{SECRETS}::test_definition_of_another_organisation_is_not_found",),
    ),
    Mutation(
        "secrets: types in queries are types", "aaiclick/catalog/execution/output_writer.py",
        "if wrong is not None:", "if False:",
        (f"{SECRETS}::test_invalid_type_reaches_no_query",),
    ),
)  # fmt: skip
