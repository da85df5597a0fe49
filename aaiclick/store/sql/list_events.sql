-- Events of the org $1 (or of all) with the status $2 (or any) that are older than the id $3.
SELECT o.id, o.org_id, o.job_id, o.kind, o.status::text, o.attempts, o.last_error, o.created_at, o.available_at, o.processed_at,
    o.cursor, o.payload, d.name AS dataset
FROM outbox o LEFT JOIN datasets d ON d.id::text = o.payload ->> 'dataset' AND d.org_id = o.org_id
WHERE ($1::uuid IS NULL OR o.org_id = $1) AND ($2::text IS NULL OR o.status = $2::outbox_status) AND o.id < $3
ORDER BY o.id DESC LIMIT $4
