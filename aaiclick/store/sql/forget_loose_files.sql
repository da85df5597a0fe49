-- The files $2 of the generations $1 are gone.
DELETE FROM loose_files l USING unnest($1::uuid[], $2::text[]) AS g (dataset_version, name)
WHERE l.dataset_version = g.dataset_version AND l.name = g.name AND l.deleting_at IS NOT NULL
