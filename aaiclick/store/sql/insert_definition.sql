INSERT INTO job_definitions (
    id, org_id, name, dag_name, dag_version_id, activation, runtime, operator, source, bootstrap, execution_strategy,
    idle_timeout, config, config_hash, spec, input_datasets, output_datasets, update_strategy, unique_key, scaling,
    timeout_seconds, heartbeat_timeout_seconds, max_attempts, status
) VALUES (
    $1, $2, $3, $4, $5, $6, $7, $8, $9::jsonb, $10::jsonb, $11, $12, $13::jsonb, $14, $15::jsonb, $16, $17, $18, $19, $20::jsonb,
    $21, $22, $23, $24
)
