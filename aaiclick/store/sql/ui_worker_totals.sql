SELECT coalesce(sum(tasks_completed), 0)::bigint AS completed, coalesce(sum(tasks_failed), 0)::bigint AS failed FROM workers
