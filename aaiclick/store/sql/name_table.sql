-- The table $1 is kept by the name $2, in the org of the task $3 (none: in $4, the default one). Names are chosen by people, so
-- those of another org are known here with their org in front.
WITH whose AS (SELECT coalesce((SELECT t.org_id FROM tasks t WHERE t.id = $3), $4::uuid) AS org_id),
called AS MATERIALIZED (
    SELECT CASE WHEN org_id = $4 THEN $1 ELSE org_id::text || '.' || $1 END AS name, org_id FROM whose
),
known AS (
    INSERT INTO table_refcounts (table_name, org_id) SELECT name, org_id FROM called ON CONFLICT DO NOTHING
)
INSERT INTO table_references (table_name, owner, name) SELECT name, 'NAME', $2 FROM called ON CONFLICT DO NOTHING
