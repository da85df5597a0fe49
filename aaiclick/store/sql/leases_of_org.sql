-- Which of the tasks $1 are of the org $3, and whether their attempts $2 hold tables.
SELECT g.id, EXISTS (
    SELECT FROM table_references r WHERE r.owner = 'ATTEMPT' AND r.owner_id = g.id AND r.attempt = g.attempt) AS holds
FROM unnest($1::bigint[], $2::int[]) AS g (id, attempt)
CROSS JOIN LATERAL (SELECT FROM tasks t WHERE t.id = g.id AND t.org_id = $3 OFFSET 0) AS t
