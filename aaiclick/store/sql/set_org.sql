-- From here on this session speaks for the org $1 (a text), until the connection goes back to its pool.
SELECT set_config('aaiclick.org_id', $1, false)
