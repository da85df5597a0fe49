-- Jobs of the org $1 past the id $2, of the last $3: by steps of $4 ids since $2 (an id begins with its time), and by status.
SELECT ((id - $2) / $4::bigint)::int AS step, status::text, count(*) AS count FROM (
    SELECT id, status FROM jobs WHERE org_id = $1 AND id > $2 ORDER BY id DESC LIMIT $3
) AS j GROUP BY 1, 2
