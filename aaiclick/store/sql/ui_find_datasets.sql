-- At most $4 datasets that are served in the org $1, that one of the roles $2 may read (NULL: all), with $3 in their names.
SELECT d.id, d.name FROM dag_current_versions c
JOIN dag_version_datasets p ON p.dag_version_id = c.dag_version_id
JOIN datasets d ON d.id = p.dataset_uuid AND d.producer_dag_name = c.dag_name
WHERE c.org_id = $1 AND ($2::text[] IS NULL OR d.read_roles && $2::text[]) AND strpos(lower(d.name), lower($3)) > 0
ORDER BY d.name LIMIT $4
