-- The oldest events that wait, at most $1, in the order of their ids.
SELECT id, org_id, job_id, payload ->> 'dataset' AS dataset, payload ->> 'generation' AS generation,
    payload ->> 'build' AS build, payload ->> 'only' AS only, payload -> 'partitions' AS partitions
FROM outbox WHERE status = 'Pending' AND kind = 'route_event' ORDER BY id LIMIT $1::int FOR UPDATE
