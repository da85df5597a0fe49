SELECT id, name, activation, operator, runtime, source, execution_strategy, input_datasets, output_datasets,
    update_strategy, status::text, next_run_at, last_event_at, last_heartbeat
FROM job_definitions WHERE dag_version_id = $1 ORDER BY name
