-- All secrets, locked for re-encryption.
SELECT org_id, name, host, ciphertext, key_id FROM org_secrets ORDER BY org_id, name FOR UPDATE
