-- Which work of definitions was given out before.
SELECT t.definition_id, t.dedupe_key FROM unnest($1::uuid[], $2::text[]) AS u (definition_id, dedupe_key)
CROSS JOIN LATERAL (
    SELECT t.definition_id, t.dedupe_key FROM tasks t
    WHERE t.definition_id = u.definition_id AND t.dedupe_key = u.dedupe_key AND t.dedupe_key IS NOT NULL OFFSET 0) AS t
