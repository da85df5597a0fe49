-- Tables of the org $2 with who refers to them, in the order of their names: those of the job $1, or all.
SELECT c.table_name, c.refcount, c.created_at, c.dropping_at,
    coalesce((SELECT jsonb_agg(jsonb_build_object('owner', r.owner, 'id', r.owner_id::text, 'attempt', r.attempt,
            'name', r.name, 'job_id', r.job_id::text, 'refs', r.refs) ORDER BY r.owner, r.owner_id)
        FROM table_references r WHERE r.table_name = c.table_name), '[]') AS owners
FROM table_refcounts c
WHERE ($1::bigint IS NULL OR c.table_name IN (SELECT r.table_name FROM table_references r WHERE r.job_id = $1))
  AND c.org_id = $2 AND c.table_name > $3 ORDER BY c.table_name LIMIT $4
