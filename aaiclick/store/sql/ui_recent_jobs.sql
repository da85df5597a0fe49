-- Jobs of the org $1 past the id $2, of the last $3: by steps of $5 seconds since $4, and by status.
SELECT floor(extract(epoch FROM created_at - $4::timestamptz) / $5::float8)::int AS step, status::text, count(*) AS count FROM (
    SELECT created_at, status FROM jobs WHERE org_id = $1 AND id > $2 ORDER BY id DESC LIMIT $3
) AS j WHERE created_at >= $4 GROUP BY 1, 2
