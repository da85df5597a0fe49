-- Delete the oldest events that are due at $3, at most $1, or those named by $2; the router inserts their tasks in this transaction.
-- (Marking them as Done costs four times as much, and nothing reads it.) Grouped by payload, which thousands share: ids,
-- and the job and cursor of each.
WITH taken AS (
    DELETE FROM outbox WHERE status = 'Pending' AND id = ANY (coalesce($2::bigint[], ARRAY(
        SELECT id FROM outbox WHERE status = 'Pending' AND kind = 'route_event'
          AND available_at <= coalesce($3::timestamptz, now()) ORDER BY id LIMIT $1::int)))
    RETURNING id, org_id, job_id, cursor, payload
)
SELECT org_id, payload::text AS payload, array_agg(id) AS ids, array_agg(job_id) AS jobs, array_agg(cursor) AS cursors
FROM taken GROUP BY org_id, taken.payload
