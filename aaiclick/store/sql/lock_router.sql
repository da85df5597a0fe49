-- One router at a time: so events of a dataset are routed in their order. Who comes second has nothing to do.
SELECT pg_try_advisory_xact_lock(hashtextextended('aaiclick router', 0))
