-- The id of the job that is $3 places older than the first one of the org $1 before the id $2.
SELECT id FROM jobs WHERE org_id = $1 AND id < $2 ORDER BY id DESC OFFSET $3 LIMIT 1
