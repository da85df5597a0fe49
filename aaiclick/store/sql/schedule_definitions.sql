-- Only the definitions of the version that serves have a next run.
UPDATE job_definitions d SET next_run_at = n.next_run_at, updated_at = now()
FROM job_definitions o
LEFT JOIN unnest($4::text[], $5::timestamptz[]) AS n (name, next_run_at) ON o.dag_version_id = $3 AND n.name = o.name
WHERE o.org_id = $1 AND o.dag_name = $2 AND d.id = o.id AND d.next_run_at IS DISTINCT FROM n.next_run_at
