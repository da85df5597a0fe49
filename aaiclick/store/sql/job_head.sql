SELECT org_id, name, status::text, completed_at IS NOT NULL AS ended, cancel_requested_at IS NOT NULL AS cancelled
FROM jobs WHERE id = $1
