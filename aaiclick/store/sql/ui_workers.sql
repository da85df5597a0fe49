-- Workers that serve the org $1, its own and those of everybody, the newest first, stopped ones if $2; at most $3 after $4.
SELECT {workers.*} FROM workers
WHERE (org_id IS NULL OR org_id = $1) AND ($2 OR status <> 'STOPPED') ORDER BY id DESC LIMIT $3 OFFSET $4
