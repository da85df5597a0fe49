-- Whether a task that waits for its time has waited long enough: the cheap question before `promote.sql`.
SELECT EXISTS (SELECT FROM tasks WHERE readiness = 'TIME' AND available_at <= coalesce($1::timestamptz, now()))
