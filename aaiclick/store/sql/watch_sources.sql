-- Set the status of sources by their tasks at $1: of all that serve or are not Pending, or of the DAG $3 of the org $2. Triggers do
-- so when a task changes; this finds leases that have run out and what a trigger passed over. Returns how many have died.
SELECT count(*) FROM (
    SELECT aaiclick_set_source_status(d.id, NULL, coalesce($1::timestamptz, now())) AS died FROM job_definitions d
    WHERE d.activation = 'source' AND ($3::text IS NULL OR (d.org_id = $2 AND d.dag_name = $3))
      AND (d.status <> 'Pending' OR EXISTS (SELECT FROM dag_current_versions c WHERE c.dag_version_id = d.dag_version_id))
    OFFSET 0) AS s
WHERE s.died
