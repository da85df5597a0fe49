-- Jobs of the org $1 by state: of the unfinished at most $2 each, and what became of the last $2 of all.
SELECT
    (SELECT count(*) FROM (SELECT FROM jobs WHERE org_id = $1 AND completed_at IS NULL AND status = 'PENDING' LIMIT $2) AS p)
        AS pending,
    (SELECT count(*) FROM (SELECT FROM jobs WHERE org_id = $1 AND completed_at IS NULL AND status = 'RUNNING' LIMIT $2) AS r)
        AS running,
    count(*) FILTER (WHERE status = 'COMPLETED') AS completed, count(*) FILTER (WHERE status = 'FAILED') AS failed,
    count(*) FILTER (WHERE status = 'CANCELLED') AS cancelled, count(*) AS seen
FROM (SELECT status FROM jobs WHERE org_id = $1 ORDER BY id DESC LIMIT $2) AS last
