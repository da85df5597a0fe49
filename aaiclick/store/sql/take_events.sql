-- The oldest events that wait, at most $1, taken out for good: who routes is alone, and gives out their tasks in this transaction.
-- (Marked as done they cost four times as much, and are read by nobody.) They come by what they say, which is the same of
-- thousands: ids, and the job of each.
WITH taken AS (
    DELETE FROM outbox WHERE status = 'Pending' AND id = ANY (ARRAY(
        SELECT id FROM outbox WHERE status = 'Pending' AND kind = 'route_event' ORDER BY id LIMIT $1::int))
    RETURNING id, org_id, job_id, payload
)
SELECT org_id, payload::text AS payload, array_agg(id) AS ids, array_agg(job_id) AS jobs FROM taken GROUP BY org_id, taken.payload
