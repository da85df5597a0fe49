SELECT {workers.*} FROM workers WHERE $1::text IS NULL OR status = $1::worker_status ORDER BY id
