DELETE FROM queue_minutes WHERE minute < coalesce($1::timestamptz, now()) - interval '1 day'
