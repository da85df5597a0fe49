-- Hand free slots of the concurrency keys ($1, $2) to the next in line: ready and running together stay within the
-- limit of the key. Of several limits on tasks of one key the next in line's own counts.
WITH key AS (SELECT DISTINCT u.org_id, u.key FROM unnest($1::uuid[], $2::text[]) AS u (org_id, key)),
line AS MATERIALIZED (
    SELECT k.org_id, k.key, (
            SELECT count(*) FROM tasks t WHERE t.org_id = k.org_id AND t.concurrency_key = k.key
              AND t.concurrency_key IS NOT NULL AND (t.readiness = 'READY' OR t.status IN ('CLAIMED', 'RUNNING'))
        ) AS taken, coalesce((
            SELECT t.concurrency_limit FROM tasks t
            WHERE t.readiness = 'HELD' AND t.org_id = k.org_id AND t.concurrency_key = k.key
            ORDER BY t.priority DESC, COALESCE(t.job_id, t.id), t.id LIMIT 1), 1) AS slots
    FROM key k
),
next AS MATERIALIZED (
    SELECT n.id FROM line l CROSS JOIN LATERAL (
        SELECT t.id FROM tasks t
        WHERE t.readiness = 'HELD' AND t.org_id = l.org_id AND t.concurrency_key = l.key
          AND (t.org_id, t.type) NOT IN (SELECT org_id, name FROM task_types WHERE paused_at IS NOT NULL)
          AND NOT coalesce(t.job_id IN (SELECT id FROM jobs WHERE paused_at IS NOT NULL), false)
        ORDER BY t.priority DESC, COALESCE(t.job_id, t.id), t.id
        LIMIT greatest(0, l.slots - l.taken) FOR NO KEY UPDATE SKIP LOCKED) n
)
UPDATE tasks SET readiness = 'READY', updated_at = now() WHERE id = ANY (ARRAY(SELECT id FROM next))
RETURNING queue
