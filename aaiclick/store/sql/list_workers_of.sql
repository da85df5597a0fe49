-- Workers that serve the org $1: its own and those of everybody; after the id $2, stopped ones if $3, at most $4.
SELECT {workers.*} FROM workers
WHERE (org_id IS NULL OR org_id = $1) AND id > $2 AND ($3 OR status <> 'STOPPED') ORDER BY id LIMIT $4
