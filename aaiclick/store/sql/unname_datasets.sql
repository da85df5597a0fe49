-- Names change hands when a version begins to serve: first all of the DAG's are put aside, under names nobody can ask for.
UPDATE datasets
SET name = producer_dag_name || '.' || producer_job_name || '.' || producer_output_index, updated_at = now()
WHERE org_id = $1 AND producer_dag_name = $2
