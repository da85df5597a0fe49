-- Jobs that are over hold their final results (of completed tasks that nothing follows but what they added themselves)
-- and nothing else. A failed job may be retried, which needs what its tasks have made: it holds on for $1 seconds. The
-- walk visits jobs that hold more.
WITH RECURSIVE holding (id) AS (
    (SELECT job_id FROM table_references WHERE job_id IS NOT NULL AND NOT kept ORDER BY job_id LIMIT 1)
    UNION ALL
    SELECT (SELECT r.job_id FROM table_references r WHERE r.job_id IS NOT NULL AND NOT r.kept AND r.job_id > h.id
            ORDER BY r.job_id LIMIT 1)
    FROM holding h WHERE h.id IS NOT NULL
),
ended AS MATERIALIZED (
    SELECT id FROM jobs WHERE id = ANY (ARRAY(SELECT id FROM holding)) AND completed_at IS NOT NULL
      AND (status <> 'FAILED' OR completed_at < coalesce($3::timestamptz, now()) - $1::float8 * interval '1 second')
    ORDER BY id LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED
),
judged AS MATERIALIZED (
    SELECT r.ctid AS place, r.owner = 'RESULT' AND CASE
        WHEN t.followed IS NULL THEN false
        WHEN NOT t.followed THEN true
        ELSE NOT EXISTS (
            SELECT FROM dependencies d WHERE d.previous_id = r.owner_id AND r.owner_id IS DISTINCT FROM CASE d.next_type
                WHEN 'task' THEN (SELECT n.added_by FROM tasks n WHERE n.id = d.next_id)
                ELSE (SELECT g.added_by FROM groups g WHERE g.id = d.next_id) END)
        END AS final
    FROM ended e CROSS JOIN LATERAL (
        SELECT r.ctid, r.owner, r.owner_id FROM table_references r WHERE r.job_id = e.id AND NOT r.kept OFFSET 0) AS r
    LEFT JOIN LATERAL (SELECT t.followed FROM tasks t WHERE t.id = r.owner_id OFFSET 0) AS t ON true
),
staying AS (
    UPDATE table_references SET kept = true WHERE ctid = ANY (ARRAY(SELECT place FROM judged WHERE final)) AND NOT kept
    RETURNING 1
),
going AS (
    DELETE FROM table_references WHERE ctid = ANY (ARRAY(SELECT place FROM judged WHERE NOT final)) AND NOT kept
    RETURNING 1
)
SELECT (SELECT count(*) FROM going)::int AS released, (SELECT count(*) FROM staying)::int AS kept
