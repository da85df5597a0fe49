-- Tasks of the queue $1 that a runtime is to be told of now: the first $2 ready ones of each org, in the order of claims,
-- unless it was told of them after the same attempt a short while ago ($5 seconds, twice that the next time, up to an hour).
-- $3: of that org alone; $4: not of these. Bounded by $2, whatever waits behind.
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
