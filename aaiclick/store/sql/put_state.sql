INSERT INTO operator_state (org_id, definition_id, state_key, state) VALUES ($1, $2, $3, $4::jsonb)
ON CONFLICT (org_id, definition_id, state_key) DO UPDATE SET state = excluded.state, updated_at = now()
