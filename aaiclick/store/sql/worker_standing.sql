-- Of the workers $2 of the orgs $1: HEARD_OF within the last $3 seconds, ENDED (stopped $4 seconds ago, or nobody knows of them),
-- or SILENT.
SELECT g.org_id, g.id, CASE
    WHEN w.id IS NULL THEN 'ENDED'
    WHEN w.status = 'STOPPED' AND w.stopped_at < now() - $4::float8 * interval '1 second' THEN 'ENDED'
    WHEN w.status <> 'STOPPED' AND w.last_heartbeat > now() - $3::float8 * interval '1 second' THEN 'HEARD_OF'
    ELSE 'SILENT' END AS standing
FROM unnest($1::uuid[], $2::bigint[]) AS g (org_id, id)
LEFT JOIN workers w ON w.id = g.id AND w.org_id = g.org_id
