"""Mutations of the queue, of data, of registered locations and of secrets."""

from __future__ import annotations

from tests.mutations import Mutation

SQL = "aaiclick/store/sql"
ENGINE = "tests/integration/engine"
SECRETS = "tests/integration/catalog/test_secrets_run.py"
FOREIGN = "tests/integration/runtimes/test_foreign_parquet.py"
CLEANUP = "tests/integration/lifecycle/test_cleanup.py"
ENDING = "tests/integration/catalog/test_kills.py::test_a_completion_whose_answer_is_lost_leaves_everything_behind_once"
FENCE = "AND t.attempt = g.attempt AND t.lease_token = g.token"
END = """\
        async with faults.transaction(connection, "end"):
            return await _end(connection, successes, failures, releases, alone, now)
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
        async with faults.transaction(connection, "end"):
            ended = await _end(later, successes, failures, releases, alone, now)
        while later.kept:
            await connection.fetchval(statement("emit_events"), *later.kept.pop())
        return ended
"""

ENGINE_MUTATIONS = (
    Mutation(
        "the token in `complete.sql`", f"{SQL}/complete.sql", " AND t.lease_token = g.token", "",
        (f"{ENGINE}/test_outcomes.py",),
    ),
    Mutation(
        "the attempt and the token in `finish.sql`", f"{SQL}/finish.sql", FENCE, "AND t.lease_token IS NOT NULL",
        (f"{ENGINE}/test_outcomes.py",),
    ),
    Mutation(
        "the fence in `fail.sql`", f"{SQL}/fail.sql", FENCE, "AND t.lease_token IS NOT NULL",
        (f"{ENGINE}/test_outcomes.py", f"{ENGINE}/test_fences.py"),
    ),
    Mutation(
        "the fence in `release.sql`", f"{SQL}/release.sql", FENCE, "AND t.lease_token IS NOT NULL",
        (f"{ENGINE}/test_fences.py",),
    ),
    Mutation(
        "the fence in `start.sql`", f"{SQL}/start.sql", FENCE, "AND t.lease_token IS NOT NULL",
        (f"{ENGINE}/test_fences.py",),
    ),
    Mutation(
        "the fence in `heartbeat.sql`", f"{SQL}/heartbeat.sql", FENCE, "AND t.lease_token IS NOT NULL",
        (f"{ENGINE}/test_fences.py",),
    ),
    Mutation(
        "the fence of additions, `hold_lease.sql`", f"{SQL}/hold_lease.sql", "AND attempt = $2 AND lease_token = $3",
        "AND ($2::int, $3::uuid) IS NOT NULL", (f"{ENGINE}/test_fences.py",),
    ),
    Mutation(
        "SKIP LOCKED in `claim.sql`", f"{SQL}/claim.sql", "LIMIT $2::int FOR NO KEY UPDATE SKIP LOCKED",
        "LIMIT $2::int FOR NO KEY UPDATE", (f"{ENGINE}/test_turns.py",),
    ),
    Mutation(
        "the row lock in `claim.sql`", f"{SQL}/claim.sql", "LIMIT $2::int FOR NO KEY UPDATE SKIP LOCKED",
        "LIMIT $2::int", (f"{ENGINE}/test_turns.py", f"{ENGINE}/test_interleavings.py"),
    ),
    Mutation(
        "the counters' (graph) lock, `lock_jobs.sql`", f"{SQL}/lock_jobs.sql",
        "CASE WHEN alone THEN pg_advisory_xact_lock(job_id) IS NULL\n"
        "                      ELSE pg_advisory_xact_lock_shared(job_id) IS NULL END",
        "false", (f"{ENGINE}/test_interleavings.py",),
    ),
    Mutation(
        "the reaper's second look at the expiry", f"{SQL}/fail.sql",
        "(NOT g.expired OR t.lease_expires_at <= coalesce($12::timestamptz, now()))", "true",
        (f"{ENGINE}/test_outcomes.py",),
    ),
    Mutation(
        "the look at a drop that has begun, `hold_tables.sql`", f"{SQL}/hold_tables.sql",
        "\n      AND dropping_at IS NULL ORDER BY", " ORDER BY", (CLEANUP,),
    ),
    Mutation(
        "the look at the count, `mark_dropping.sql`", f"{SQL}/mark_dropping.sql",
        "refcount <= 0\n      AND (dropping_at", "(dropping_at", (CLEANUP,),
    ),
    Mutation(
        "the second look at the count, which is the lock, `mark_dropping.sql`", f"{SQL}/mark_dropping.sql",
        "FOR UPDATE SKIP LOCKED", "", (f"{CLEANUP}::test_a_reference_to_what_is_being_marked_waits_and_is_refused",),
    ),
    Mutation(
        "the events of a completion", "aaiclick/store/catalog_runs.py", "return await emit(connection, events)",
        "return await emit(connection, [])", (ENDING,),
    ),
    Mutation(
        "putting events into the outbox in the transaction of the completion", "aaiclick/store/outcomes.py", END,
        END_THEN_EMIT, (ENDING,),
    ),
    Mutation(
        "the transaction that takes events out of the outbox", "aaiclick/store/event_routing.py",
        'async with faults.transaction(connection, "route"):', 'async with faults.statement("route"):',
        ("tests/integration/catalog/test_kills.py",),
    ),
    Mutation(
        "the wall between organisations on `tasks`", "aaiclick/store/migrations/versions/0001_initial.sql",
        "CREATE POLICY org ON tasks USING (org_id = aaiclick_org_id());", "CREATE POLICY org ON tasks USING (true);",
        ("tests/integration/server/test_walls.py",),
    ),
    Mutation(
        "publishing range after range on a cluster", "aaiclick/data/cluster.py", "if len(homes) == 1:", "if homes:",
        ("tests/integration/cluster/test_cluster.py",),
    ),
    Mutation(
        "sending rows to ClickHouse once", "aaiclick/data/client.py",
        "raw_insert(None, None, whole(), merged)",
        'raw_insert(None, None, b"".join([piece async for piece in whole()]), merged)',
        ("tests/integration/data/test_cut_off.py",),
    ),
    Mutation(
        "saying again what PostgreSQL may not have heard", "aaiclick/orchestration/worker/process.py",
        "self._outcomes = outcomes + self._outcomes", "self._outcomes = self._outcomes",
        ("tests/integration/worker/test_commits.py",),
    ),
    Mutation(
        "giving back a claim whose answer was lost", "aaiclick/orchestration/worker/process.py",
        "if _attempt(row.lease) not in known and", "if False and",
        ("tests/integration/worker/test_commits.py",),
    ),
    Mutation(
        "the organisation's places of registered locations", "aaiclick/catalog/registration.py",
        "if not any(location.startswith(place) for place in own):", "if False:",
        (f"{FOREIGN}::test_a_location_of_another_organisation_cannot_be_registered",),
    ),
    Mutation(
        "the overlap of registered locations", "aaiclick/store/catalog_datasets.py",
        "if other is not None:", "if False:",
        (f"{FOREIGN}::test_registered_ranges_are_read_together",),
    ),
    Mutation(
        "unfinished files at registered locations", "aaiclick/catalog/running/foreign.py",
        "    if hidden is not None:", "    if False:",
        (f"{FOREIGN}::test_what_cannot_be_a_dataset_fails_with_the_reason",),
    ),
    Mutation(
        "the conflict of registered locations", "aaiclick/store/sql/register_dataset_version.sql",
        "ON CONFLICT (dataset_uuid, config_hash, numrange(range_start::numeric, range_end::numeric, '[]')) DO NOTHING",
        "", ("tests/integration/catalog/test_registration.py::test_registrations_at_once_make_one_row",),
    ),
    Mutation(
        "claims before starts", f"{SQL}/finish.sql",
        "greatest(t.claimed_at, coalesce($6::timestamptz, now()) - g.seconds * interval '1 second')",
        "coalesce($6::timestamptz, now()) - g.seconds * interval '1 second'",
        (f"{ENGINE}/test_outcomes.py::test_no_attempt_starts_before_it_was_claimed",),
    ),
    Mutation(
        "secrets: the token of the lease, `secrets_of_task.sql`", f"{SQL}/secrets_of_task.sql",
        "AND t.lease_token = $3", "AND $3::uuid IS NOT NULL",
        (f"{SECRETS}::test_a_lease_that_is_lost_is_given_nothing",),
    ),
    Mutation(
        "secrets: the organisation as associated data", "aaiclick/store/secret_keys.py", "str(org_id), name, host]",
        "name, host]", (f"{SECRETS}::test_a_row_copied_from_another_organisation_cannot_be_decrypted",),
    ),
    Mutation(
        "secrets: the host of each request", "aaiclick/catalog/running/fetching.py",
        "            _check_hosts(request.url, hosts)\n", "",
        (f"{SECRETS}::test_a_bound_secret_is_sent_to_its_host_only",),
    ),
    Mutation(
        "secrets: headers and body of one origin", "aaiclick/catalog/running/fetching.py",
        "if _origin(target) == _origin(request.url):", "if True:",
        (f"{SECRETS}::test_headers_and_body_of_one_origin_are_not_sent_to_another",),
    ),
    Mutation(
        "secrets: bound ones for http_fetch alone", "aaiclick/store/org_secrets.py",
        'task["operator"] != SENDER or origin_of(task["url"] or "") != secret.host', "False",
        (f"{SECRETS}::test_a_bound_secret_is_given_to_no_code",),
    ),
    Mutation(
        "secrets: redaction of logs", "aaiclick/orchestration/worker/logs.py",
        "        text = self.redactor.redact(text)\n", "",
        (f"{SECRETS}::test_no_secret_is_in_the_log_the_error_or_the_database",),
    ),
    Mutation(
        "secrets: the organisation of a definition", "aaiclick/catalog/running/ledger.py",
        "if work.org_id != self._scope.org_id:", "if False:",
        (f"{SECRETS}::test_a_task_that_names_another_organisations_definition_finds_none",),
    ),
    Mutation(
        "secrets: types in queries are types", "aaiclick/catalog/running/task.py", "if wrong is not None:", "if False:",
        (f"{SECRETS}::test_a_type_that_is_none_reaches_no_query",),
    ),
)  # fmt: skip
