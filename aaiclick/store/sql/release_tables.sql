-- Attempts have no use for some of their tables any more.
DELETE FROM table_references r USING unnest($1::text[], $2::bigint[], $3::int[]) AS g (name, id, attempt)
WHERE r.table_name = g.name AND r.owner = 'ATTEMPT' AND r.owner_id = g.id AND r.attempt = g.attempt
