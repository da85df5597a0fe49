-- Which secrets the attempt $2 of the task $1 may use while it holds the lease $3; no row: it does not hold it.
-- `secrets` of a task of a definition maps its names to those of the organisation; a task of none may name all of them.
SELECT t.org_id, o.slug, t.definition_id IS NOT NULL AS is_of_definition, d.spec -> 'secrets' AS secrets,
    d.spec ->> 'operator' AS operator, d.spec -> 'config' ->> 'url' AS url
FROM tasks t JOIN orgs o ON o.id = t.org_id
LEFT JOIN job_definitions d ON d.id = t.definition_id AND d.org_id = t.org_id
WHERE t.id = $1 AND t.attempt = $2 AND t.lease_token = $3
