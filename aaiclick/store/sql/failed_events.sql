-- Failed events of the org $1 (or of all), all or those named by $2, at most $3; locked, with their jobs.
SELECT o.id, j.cancel_requested_at IS NOT NULL AS cancelled FROM outbox o JOIN jobs j ON j.id = o.job_id
WHERE o.status = 'Failed' AND ($1::uuid IS NULL OR o.org_id = $1) AND ($2::bigint[] IS NULL OR o.id = ANY ($2))
ORDER BY j.id, o.id LIMIT $3 FOR NO KEY UPDATE
