-- Of the tasks $1 of the org $2 those that belong to a definition, themselves or by the task that added them: which of its
-- outputs, by the names that it has for them, one of the roles $3 may read, and whether these may read everything that it
-- makes and reads. Of a definition that is there no more nobody may.
WITH RECURSIVE origin AS (
    SELECT t.id, t.definition_id, t.added_by, true AS own FROM unnest($1::bigint[]) AS u (id) CROSS JOIN LATERAL (
        SELECT t.id, t.definition_id, t.added_by FROM tasks t WHERE t.id = u.id AND t.org_id = $2 OFFSET 0) AS t
    UNION ALL
    SELECT o.id, t.definition_id, t.added_by, false FROM origin o CROSS JOIN LATERAL (
        SELECT t.definition_id, t.added_by FROM tasks t WHERE t.id = o.added_by OFFSET 0) AS t
    WHERE o.definition_id IS NULL
),
told AS MATERIALIZED (
    SELECT f.id,
        ARRAY(
            SELECT f.spec -> 'outputs' -> (o.nth - 1)::int ->> 'name'
            FROM unnest(f.output_datasets) WITH ORDINALITY AS o (id, nth)
            JOIN datasets d ON d.id::text = o.id AND d.org_id = f.org_id
            WHERE d.read_roles && $3::text[]) AS outputs,
        NOT EXISTS (
            SELECT FROM unnest(coalesce(f.input_datasets, '{}') || coalesce(f.output_datasets, '{}')) AS n (id)
            LEFT JOIN datasets d ON d.id::text = n.id AND d.org_id = f.org_id
            WHERE d.id IS NULL OR NOT d.read_roles && $3::text[]) AS everything
    FROM job_definitions f
    WHERE f.id = ANY (ARRAY(SELECT DISTINCT o.definition_id FROM origin o WHERE o.definition_id IS NOT NULL)) AND f.org_id = $2
)
SELECT o.id, CASE WHEN o.own AND told.id IS NOT NULL THEN told.outputs ELSE '{}' END AS outputs,
    coalesce(told.everything, false) AS everything
FROM origin o LEFT JOIN told ON told.id = o.definition_id WHERE o.definition_id IS NOT NULL
