-- What tells one content of the generation $1 from another: the digests of its partitions, if all have one; else its ticket.
SELECT CASE WHEN count(*) > 0 AND count(*) = count(p.digest)
    THEN md5(string_agg(p.partition_key || ':' || p.digest, ',' ORDER BY p.partition_key))
    ELSE (SELECT v.ticket::text FROM dataset_versions v WHERE v.id = $1) END
FROM dataset_partitions p WHERE p.dataset_version = $1 AND p.recorded_ticket > 0
