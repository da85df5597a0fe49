SELECT DISTINCT key_id FROM org_secrets ORDER BY key_id
