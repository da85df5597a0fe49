-- name: take_dispatches
-- Tasks of the queue $1 to dispatch to a runtime now: the first $2 ready ones of each org, in claim order, unless they
-- were dispatched after the same attempt within $5 seconds (doubled each time, up to an hour). $3: of that org only;
-- $4: not of these orgs. Reads at most $2 tasks per org.
WITH clock AS MATERIALIZED (SELECT coalesce($6::timestamptz, now()) AS now),
front AS MATERIALIZED (
    SELECT f.id, o.id AS org_id, f.attempt FROM orgs o CROSS JOIN LATERAL (
        SELECT t.id, t.attempt FROM tasks t WHERE t.readiness = 'READY' AND t.org_id = o.id AND t.queue = $1
        ORDER BY t.priority DESC, COALESCE(t.job_id, t.id), t.id LIMIT $2) f
    WHERE o.paused_at IS NULL AND ($3::uuid IS NULL OR o.id = $3) AND o.id <> ALL ($4::uuid[])
      AND NOT EXISTS (SELECT FROM queues q WHERE q.org_id = o.id AND q.name = $1 AND q.paused_at IS NOT NULL)
)
INSERT INTO dispatches AS d (task_id, org_id, attempt, sent_at)
SELECT id, org_id, attempt, (SELECT now FROM clock) FROM front ORDER BY id
ON CONFLICT (task_id) DO UPDATE SET attempt = excluded.attempt, sent_at = excluded.sent_at, error = NULL,
    sent = CASE WHEN d.attempt = excluded.attempt THEN d.sent + 1 ELSE 1 END
WHERE d.attempt <> excluded.attempt
   OR d.sent_at + least($5::float8 * 2 ^ least(d.sent - 1, 20), 3600) * interval '1 second' <= excluded.sent_at
RETURNING task_id

-- name: record_dispatch_failure
-- Record the error of a failed dispatch of the tasks $1, for `explain_task`.
UPDATE dispatches SET error = $2 WHERE task_id = ANY ($1::bigint[])

-- name: record_dispatch_refusal
-- Record that the runtime refused the task $1 of the org $2, after its attempt $3, with the error $4.
INSERT INTO dispatches AS d (task_id, org_id, attempt, error) VALUES ($1, $2, $3, $4)
ON CONFLICT (task_id) DO UPDATE SET attempt = excluded.attempt, sent_at = now(), error = excluded.error, sent = d.sent + 1

-- name: delete_finished_dispatches
-- Delete dispatches of tasks that are no longer ready, at most $1.
DELETE FROM dispatches WHERE task_id = ANY (ARRAY(
    SELECT d.task_id FROM dispatches d
    WHERE NOT EXISTS (SELECT FROM tasks t WHERE t.id = d.task_id AND t.readiness = 'READY') LIMIT $1))

-- name: load_org_ids
-- The ids of the orgs with the slugs $1.
SELECT slug, id FROM orgs WHERE slug = ANY ($1::text[])
