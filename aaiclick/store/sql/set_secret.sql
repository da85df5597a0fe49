-- Set the secret $2 of the org $1.
INSERT INTO org_secrets (org_id, name, host, ciphertext, key_id) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (org_id, name) DO UPDATE SET host = excluded.host, ciphertext = excluded.ciphertext,
    key_id = excluded.key_id, updated_at = now()
RETURNING name, host, created_at, updated_at
