-- Wait until everything this session has committed is on disk: an empty record after it, committed durably.
SELECT pg_logical_emit_message(true, 'aaiclick', '')
