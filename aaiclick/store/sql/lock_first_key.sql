SELECT pg_advisory_xact_lock(hashtext('aaiclick first key'))
