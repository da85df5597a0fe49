SELECT {workers.*} FROM workers WHERE id = $2 AND (org_id IS NULL OR org_id = $1)
