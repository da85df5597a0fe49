-- Count the tasks of the job $1 anew; what waits is blocked or not by that.
WITH fresh AS MATERIALIZED (
    SELECT t.id, (
            SELECT count(*) FROM dependencies d WHERE d.next_id = t.id AND NOT CASE d.previous_type
                WHEN 'task' THEN EXISTS (SELECT FROM tasks p WHERE p.id = d.previous_id AND (p.status = 'COMPLETED' OR p.passed_over))
                ELSE EXISTS (SELECT FROM groups p WHERE p.id = d.previous_id AND p.completed_at IS NOT NULL) END
        ) AS unmet,
        EXISTS (SELECT FROM groups g WHERE g.id = t.group_id AND g.unmet > 0) AS closed
    FROM tasks t WHERE t.job_id = $1
)
UPDATE tasks t SET unmet = f.unmet, updated_at = coalesce($2::timestamptz, now()),
    readiness = CASE WHEN t.readiness IS NULL THEN NULL
        WHEN f.unmet > 0 OR f.closed THEN 'BLOCKED'
        WHEN t.readiness <> 'BLOCKED' THEN t.readiness
        WHEN t.available_at > coalesce($2::timestamptz, now()) THEN 'TIME'
        WHEN t.concurrency_key IS NOT NULL THEN 'HELD'
        ELSE 'READY' END::task_readiness
FROM fresh f
WHERE t.id = f.id AND (t.unmet <> f.unmet OR t.readiness IS NOT NULL)
RETURNING t.org_id, t.concurrency_key, t.queue, t.readiness::text
