-- I7: the count of a table is the sum of its references; only live attempts refer to anything.
SELECT kind, id, finding, count(*) OVER () AS total FROM (
    SELECT 'table' AS kind, CASE WHEN c.table_name ~ '^t[0-9]{1,18}$' THEN substr(c.table_name, 2)::bigint ELSE 0 END AS id,
        format('%s counts %s references and has %s', c.table_name, c.refcount, coalesce(r.refs, 0)) AS finding
    FROM table_refcounts c LEFT JOIN (
        SELECT table_name, sum(refs) AS refs FROM table_references GROUP BY table_name) r USING (table_name)
    WHERE c.refcount <> coalesce(r.refs, 0)
    UNION ALL
    SELECT 'task', r.owner_id, format('attempt %s is over and still refers to %s', r.attempt, r.table_name)
    FROM table_references r LEFT JOIN tasks t ON t.id = r.owner_id AND t.attempt = r.attempt AND t.lease_token IS NOT NULL
    WHERE r.owner = 'ATTEMPT' AND t.id IS NULL
) AS found
LIMIT 100
