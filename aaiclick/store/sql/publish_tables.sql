-- The attempts $1, $2 have succeeded, in this transaction: the tables $4 within the results of the tasks $3 are held by
-- them, everything else of the attempts is released. A table of another org is held by nobody here.
WITH ended AS (
    DELETE FROM table_references r USING unnest($1::bigint[], $2::int[]) AS g (id, attempt)
    WHERE r.owner = 'ATTEMPT' AND r.owner_id = g.id AND r.attempt = g.attempt
),
results AS MATERIALIZED (
    SELECT DISTINCT g.id, g.name, t.job_id, t.org_id FROM unnest($3::bigint[], $4::text[]) AS g (id, name)
    CROSS JOIN LATERAL (SELECT t.job_id, t.org_id FROM tasks t WHERE t.id = g.id OFFSET 0) AS t
),
known AS (
    INSERT INTO table_refcounts (table_name, org_id) SELECT DISTINCT name, org_id FROM results ORDER BY name
    ON CONFLICT DO NOTHING
)
INSERT INTO table_references (table_name, owner, owner_id, job_id)
SELECT name, 'RESULT', id, job_id FROM results r
WHERE NOT EXISTS (SELECT FROM table_refcounts c WHERE c.table_name = r.name AND c.org_id <> r.org_id)
ORDER BY name ON CONFLICT DO NOTHING
