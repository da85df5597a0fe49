-- The sessions $1 are over, and refer to nothing any more.
WITH gone AS (DELETE FROM table_sessions WHERE id = ANY ($1::bigint[]))
DELETE FROM table_references WHERE owner_id = ANY ($1::bigint[]) AND owner = 'SESSION'
