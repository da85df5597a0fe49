-- Jobs of the orgs $1 as they are: all that have not ended, those among $2 (known as unfinished) that have, and those
-- past the id $3 that have: they came and went since the last look.
SELECT id, org_id, name, status::text, total_tasks, open_tasks, failed_tasks, cancelled_tasks, paused_at IS NOT NULL AS paused
FROM jobs WHERE org_id = ANY ($1::uuid[]) AND completed_at IS NULL
UNION ALL
SELECT id, org_id, name, status::text, total_tasks, open_tasks, failed_tasks, cancelled_tasks, paused_at IS NOT NULL AS paused
FROM jobs WHERE id = ANY ($2::bigint[]) AND completed_at IS NOT NULL
UNION ALL
SELECT id, org_id, name, status::text, total_tasks, open_tasks, failed_tasks, cancelled_tasks, paused_at IS NOT NULL AS paused
FROM jobs WHERE org_id = ANY ($1::uuid[]) AND id > $3 AND completed_at IS NOT NULL AND id <> ALL ($2::bigint[])
