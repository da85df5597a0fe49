-- Events to route, in the transaction of what caused them; routers are notified when that commits.
WITH put AS (
    INSERT INTO outbox (org_id, job_id, kind, ordering_key, payload, cursor)
    SELECT org_id, job_id, 'route_event', key, payload, cursor
    FROM unnest($1::uuid[], $2::bigint[], $3::text[], $4::jsonb[], $5::text[]) WITH ORDINALITY
        AS u (org_id, job_id, key, payload, cursor, nth)
    ORDER BY nth
    RETURNING id
)
SELECT count(*), pg_notify('aaiclick_events', '') FROM put
