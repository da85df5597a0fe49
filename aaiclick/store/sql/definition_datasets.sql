-- The datasets that the definition $1 reads and makes, in the generations that its version points to; those of another
-- DAG as they are served now.
SELECT n.role, n.nth, s.id AS dataset, s.name, v.id AS generation, v.storage_location, v.columns, v.files,
    v.ticket, v.updated_at
FROM job_definitions d
CROSS JOIN LATERAL (
    SELECT 'input' AS role, u.id, u.nth FROM unnest(d.input_datasets::uuid[]) WITH ORDINALITY AS u (id, nth)
    UNION ALL
    SELECT 'output', u.id, u.nth FROM unnest(d.output_datasets::uuid[]) WITH ORDINALITY AS u (id, nth)) AS n
JOIN datasets s ON s.id = n.id AND s.org_id = d.org_id
JOIN dag_version_datasets p ON p.dataset_uuid = s.id AND p.dag_version_id =
    CASE WHEN s.producer_dag_name = d.dag_name THEN d.dag_version_id ELSE (
        SELECT c.dag_version_id FROM dag_current_versions c
        WHERE c.org_id = d.org_id AND c.dag_name = s.producer_dag_name) END
JOIN dataset_versions v ON v.id = p.dataset_version
WHERE d.id = $1 ORDER BY n.role, n.nth
