SELECT id, name, unmet = 0 AS opened, completed_at IS NOT NULL AS completed, failed_at IS NOT NULL AS failed, added_by,
    CASE WHEN added_by IS NULL THEN false ELSE EXISTS (
        SELECT FROM tasks a WHERE a.id = g.added_by AND a.status <> 'COMPLETED' AND a.result IS NULL) END AS staged
FROM groups g WHERE id = ANY ($1::bigint[]) AND job_id = $2
