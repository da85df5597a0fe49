-- Workers that are there, and tasks whose lease ran out $1 seconds ago without anybody having taken them back.
SELECT (SELECT count(*) FROM workers WHERE status <> 'STOPPED') AS workers,
    (SELECT count(*) FROM tasks WHERE status IN ('CLAIMED', 'RUNNING')
        AND lease_expires_at < now() - make_interval(secs => $1::float8)) AS stale
