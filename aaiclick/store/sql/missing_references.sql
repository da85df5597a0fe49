-- The first thing that does not exist of what events name: the dataset $2 of the org $1, the DAG version $4, the definition $5.
SELECT CASE
    WHEN NOT EXISTS (SELECT FROM datasets d WHERE d.id = g.dataset AND d.org_id = g.org_id) THEN 'dataset ' || g.dataset
    WHEN g.build IS NOT NULL AND NOT EXISTS (SELECT FROM dag_versions v WHERE v.id = g.build AND v.org_id = g.org_id)
        THEN 'DAG version ' || g.build
    ELSE 'definition ' || g.only_id END AS missing
FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::uuid[], $5::uuid[]) WITH ORDINALITY
    AS g (org_id, dataset, generation, build, only_id, nth)
WHERE NOT EXISTS (SELECT FROM datasets d WHERE d.id = g.dataset AND d.org_id = g.org_id)
   OR (g.build IS NOT NULL AND NOT EXISTS (SELECT FROM dag_versions v WHERE v.id = g.build AND v.org_id = g.org_id))
   OR (g.only_id IS NOT NULL AND NOT EXISTS (SELECT FROM job_definitions f WHERE f.id = g.only_id AND f.org_id = g.org_id))
ORDER BY g.nth LIMIT 1
