SELECT org_id, name, host, ciphertext, key_id FROM org_secrets WHERE org_id = $1 AND name = $2
