-- Only the definitions of the version that serves have a next run. A schedule that stays the same keeps its own: a run that
-- is due while a version begins to serve is neither lost nor started twice.
UPDATE job_definitions d SET next_run_at = n.next_run_at, updated_at = now()
FROM (
    SELECT o.id, CASE WHEN o.dag_version_id = $3 THEN coalesce((
        SELECT min(p.next_run_at) FROM job_definitions p
        WHERE p.org_id = $1 AND p.dag_name = $2 AND p.name = o.name AND p.source = o.source), u.next_run_at) END AS next_run_at
    FROM job_definitions o
    LEFT JOIN unnest($4::text[], $5::timestamptz[]) AS u (name, next_run_at) ON u.name = o.name
    WHERE o.org_id = $1 AND o.dag_name = $2) AS n
WHERE d.id = n.id AND d.next_run_at IS DISTINCT FROM n.next_run_at
