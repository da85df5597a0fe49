-- One router at a time: so events of a dataset are routed in their order. Who comes second has nothing to do. A routing that
-- is lost in a crash is made again, so its commit does not wait for the disk.
SELECT pg_try_advisory_xact_lock(hashtextextended('aaiclick router', 0)), set_config('synchronous_commit', 'off', true)
