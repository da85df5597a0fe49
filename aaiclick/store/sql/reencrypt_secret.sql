UPDATE org_secrets SET ciphertext = $3, key_id = $4 WHERE org_id = $1 AND name = $2
