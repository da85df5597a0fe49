"""Organisations, users, roles, API keys, secrets, browser sessions and the audit log.

- `api_keys`: API keys; only the hash of the secret is stored
- `browser_sessions`: browser sessions: hash of a token, and its API key or user
- `users`: users of an org, its roles and their members
- `orgs`: organisations and their limits
- `postgres_api_role`: PostgreSQL role of the API's sessions, and the tenant of a session
- `idempotency`: stored responses by Idempotency-Key
- `secrets`: secrets of organisations
- `secret_encryption`: encryption of secrets
- `environment_secrets`: secrets from environment variables or files of this machine
- `audit`: the audit log of an org
"""
