-- A few ($3) tasks of each kind of the job $1, from the first ($2) of the kind on.
SELECT s.id, s.group_id, s.type FROM tasks f CROSS JOIN LATERAL (
    SELECT t.id, t.group_id, t.type FROM (
        SELECT id, group_id, type FROM tasks WHERE job_id = $1 AND id >= f.id ORDER BY id LIMIT 4 * $3
    ) AS t WHERE t.group_id IS NOT DISTINCT FROM f.group_id AND t.type = f.type LIMIT $3
) AS s WHERE f.id = ANY ($2::bigint[])
