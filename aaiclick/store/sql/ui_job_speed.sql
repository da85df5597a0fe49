-- Of the last $2 jobs of the org $1 that have ended: how long they waited and how long they took, in seconds.
SELECT count(*) AS count,
    percentile_cont(0.5) WITHIN GROUP (ORDER BY waited) AS waited_half, percentile_cont(0.95) WITHIN GROUP (ORDER BY waited) AS waited_most,
    percentile_cont(0.5) WITHIN GROUP (ORDER BY took) AS took_half, percentile_cont(0.95) WITHIN GROUP (ORDER BY took) AS took_most
FROM (
    SELECT extract(epoch FROM started_at - created_at)::float8 AS waited,
        extract(epoch FROM completed_at - greatest(started_at, restarted_at))::float8 AS took
    FROM (SELECT * FROM jobs WHERE org_id = $1 ORDER BY id DESC LIMIT $2) AS last
    WHERE completed_at IS NOT NULL AND started_at IS NOT NULL
) AS j
