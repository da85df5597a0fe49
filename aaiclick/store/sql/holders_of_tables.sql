-- Who holds the tables $1 of the org $2: tasks (as a result, an argument or at work), or jobs, and whether it is the work of a
-- DAG. An owner that is NULL: nobody does, and it is about to be dropped. Of a table that is not in the books there is no row.
SELECT c.table_name, r.owner::text, CASE WHEN r.owner <> 'JOB' THEN r.owner_id END AS task_id, j.dag_version_id IS NOT NULL AS of_dag
FROM table_refcounts c LEFT JOIN table_references r ON r.table_name = c.table_name LEFT JOIN jobs j ON j.id = r.job_id
WHERE c.table_name = ANY ($1::text[]) AND c.org_id = $2
  AND (r.table_name IS NULL OR r.owner IN ('RESULT', 'TASK', 'ATTEMPT', 'JOB'))
