-- Their rows are counted by one transaction after the other, so that each sees the partitions that others recorded.
SELECT FROM dataset_versions WHERE id = ANY($1::uuid[]) ORDER BY id FOR NO KEY UPDATE
