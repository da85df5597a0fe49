SELECT id, name, unmet = 0 AS opened, completed_at IS NOT NULL AS completed, failed_at IS NOT NULL AS failed
FROM groups WHERE id = ANY ($1::bigint[]) AND job_id = $2
