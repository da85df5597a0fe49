-- The ids of the orgs with the slugs $1.
SELECT slug, id FROM orgs WHERE slug = ANY ($1::text[])
