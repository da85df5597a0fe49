-- Pairs among the tasks $1, at most $2: the definition of the second reads a dataset that the definition of the first makes.
WITH units AS MATERIALIZED (
    SELECT t.id, d.id AS definition_id, d.input_datasets, d.output_datasets
    FROM tasks t JOIN job_definitions d ON d.id = t.definition_id WHERE t.id = ANY ($1::bigint[])
)
SELECT a.id AS previous_id, b.id AS next_id FROM units a JOIN units b ON a.output_datasets && b.input_datasets
WHERE a.definition_id <> b.definition_id LIMIT $2
