-- Who reads: the role of a user of the org $1 in the platform, and its roles in the org. No row: nobody.
SELECT u.role, u.disabled_at IS NOT NULL AS disabled,
    coalesce(array_agg(r.slug) FILTER (WHERE r.slug IS NOT NULL), '{}') AS roles
FROM users u
LEFT JOIN org_role_memberships m ON m.user_id = u.id
LEFT JOIN org_roles r ON r.id = m.role_id AND r.org_id = u.org_id
WHERE u.org_id = $1 AND u.external_id = $2 GROUP BY u.id
