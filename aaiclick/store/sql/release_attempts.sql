-- Attempts have ended without success: whatever they held is released.
DELETE FROM table_references r USING unnest($1::bigint[], $2::int[]) AS g (id, attempt)
WHERE r.owner = 'ATTEMPT' AND r.owner_id = g.id AND r.attempt = g.attempt
