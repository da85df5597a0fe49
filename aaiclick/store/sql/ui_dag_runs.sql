-- The last $3 jobs of the versions $2 of the org $1, newest first.
SELECT r.* FROM unnest($2::uuid[]) AS v (id) CROSS JOIN LATERAL (
    SELECT j.id, j.name, j.status::text, j.created_at, j.started_at, j.completed_at, j.paused_at, j.total_tasks,
        j.open_tasks, j.failed_tasks, j.cancelled_tasks, j.dag_version_id
    FROM jobs j WHERE j.dag_version_id = v.id AND j.org_id = $1 ORDER BY j.id DESC LIMIT $3
) AS r ORDER BY r.id DESC LIMIT $3
