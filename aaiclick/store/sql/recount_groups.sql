-- Count the groups of the job $1 anew from what they are made of; run until nothing changes, since a group that
-- completes or opens changes the counts of others.
WITH fresh AS MATERIALIZED (
    SELECT g.id, (
            SELECT count(*) FROM dependencies d WHERE d.next_id = g.id AND NOT CASE d.previous_type
                WHEN 'task' THEN EXISTS (SELECT FROM tasks t WHERE t.id = d.previous_id AND (t.status = 'COMPLETED' OR t.passed_over))
                ELSE EXISTS (SELECT FROM groups p WHERE p.id = d.previous_id AND p.completed_at IS NOT NULL) END
        ) + EXISTS (SELECT FROM groups p WHERE p.id = g.parent_group_id AND p.unmet > 0)::int AS unmet, (
            SELECT count(*) FROM tasks t WHERE t.group_id = g.id AND t.status <> 'COMPLETED' AND NOT t.passed_over) + (
            SELECT count(*) FROM groups c WHERE c.parent_group_id = g.id AND c.completed_at IS NULL) AS open
    FROM groups g WHERE g.job_id = $1
)
UPDATE groups g SET unmet = f.unmet, open = f.open,
    completed_at = CASE WHEN f.unmet = 0 AND f.open = 0
        THEN coalesce(g.completed_at, $2::timestamptz, now()) END
FROM fresh f
WHERE g.id = f.id AND (g.unmet <> f.unmet OR g.open <> f.open
    OR (g.completed_at IS NULL) = (f.unmet = 0 AND f.open = 0))
RETURNING g.id
