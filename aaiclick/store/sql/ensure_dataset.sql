-- The dataset that is a given output of a given job; a new one has no name of its own until its version serves.
INSERT INTO datasets (id, org_id, name, producer_dag_name, producer_job_name, producer_output_index, storage)
VALUES ($1, $2, $3, $4, $5, $6, $7::jsonb)
ON CONFLICT ON CONSTRAINT datasets_producer_key DO UPDATE SET updated_at = datasets.updated_at
RETURNING id
