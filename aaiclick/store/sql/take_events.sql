-- The oldest events that wait, at most $1, marked as done in the same pass; who routes is alone and does the rest of it in this
-- transaction. (Locked first and marked afterwards they cost half as much again.)
UPDATE outbox SET status = 'Done', processed_at = now(), attempts = attempts + 1
WHERE status = 'Pending' AND id = ANY (ARRAY(
    SELECT id FROM outbox WHERE status = 'Pending' AND kind = 'route_event' ORDER BY id LIMIT $1::int))
RETURNING id, org_id, job_id, payload ->> 'dataset' AS dataset, payload ->> 'generation' AS generation,
    payload ->> 'build' AS build, payload ->> 'only' AS only, payload -> 'partitions' AS partitions
