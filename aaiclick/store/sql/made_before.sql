-- Of the outputs $6 of a DAG (of the jobs $3, numbers $4) those whose generation of the hash $5 was filled for some version.
SELECT k.output FROM unnest($3::text[], $4::int[], $5::text[], $6::text[]) AS k (job, nth, hash, output)
JOIN datasets d ON d.org_id = $1 AND d.producer_dag_name = $2 AND d.producer_job_name = k.job AND d.producer_output_index = k.nth
JOIN dataset_versions v ON v.dataset_uuid = d.id AND v.config_hash = k.hash
JOIN dag_versions m ON m.id = v.dag_version_id AND m.ready_at IS NOT NULL
