-- Of the slugs $2, those that no role of the org $1 has.
SELECT named.slug FROM unnest($2::text[]) AS named (slug)
WHERE NOT EXISTS (SELECT FROM org_roles r WHERE r.org_id = $1 AND r.slug = named.slug) ORDER BY named.slug
