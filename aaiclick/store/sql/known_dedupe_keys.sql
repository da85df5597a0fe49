-- Which work of the definition $1 was given out before, of the keys $2.
SELECT t.dedupe_key FROM unnest($2::text[]) AS u (dedupe_key) CROSS JOIN LATERAL (
    SELECT t.dedupe_key FROM tasks t
    WHERE t.definition_id = $1 AND t.dedupe_key = u.dedupe_key AND t.dedupe_key IS NOT NULL OFFSET 0) AS t
