-- Dead letters of the org $1 (NULL: of any) by what went wrong, most frequent first; an example of each.
SELECT error_fingerprint, count(*) AS count, min(completed_at) AS first, max(completed_at) AS last,
    max(type) AS type, max(id) AS example, (array_agg(error ORDER BY id DESC))[1] AS error
FROM tasks WHERE status = 'DEAD_LETTER' AND ($1::uuid IS NULL OR org_id = $1)
GROUP BY error_fingerprint ORDER BY count(*) DESC, 1 LIMIT 1000
