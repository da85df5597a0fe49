INSERT INTO dag_current_versions (org_id, dag_name, dag_version_id) VALUES ($1, $2, $3)
ON CONFLICT (org_id, dag_name) DO UPDATE SET dag_version_id = excluded.dag_version_id, updated_at = now(),
    serving_since = CASE WHEN dag_current_versions.dag_version_id = excluded.dag_version_id
        THEN dag_current_versions.serving_since ELSE now() END
