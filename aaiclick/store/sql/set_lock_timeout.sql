-- From now on this session waits for a lock as long as $1 says; returns what it was before.
WITH before AS MATERIALIZED (SELECT current_setting('lock_timeout') AS setting)
SELECT b.setting FROM before b WHERE set_config('lock_timeout', $1, false) IS NOT NULL
