SELECT state FROM operator_state WHERE org_id = $1 AND definition_id = $2 AND state_key = $3
