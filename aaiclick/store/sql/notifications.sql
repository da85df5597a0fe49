-- name: set_notification_channel
-- Create the channel $2 of the org $1, or replace it.
INSERT INTO notification_channels (org_id, name, channel_type, config, roles, digest_seconds, quiet_from, quiet_until, timezone)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (org_id, name) DO UPDATE SET channel_type = excluded.channel_type, config = excluded.config,
    roles = excluded.roles, digest_seconds = excluded.digest_seconds, quiet_from = excluded.quiet_from,
    quiet_until = excluded.quiet_until, timezone = excluded.timezone, updated_at = now()
RETURNING {notification_channels.*}

-- name: list_notification_channels
-- Channels of the orgs $1 by name.
SELECT {notification_channels.*} FROM notification_channels WHERE org_id = ANY ($1::uuid[]) ORDER BY org_id, name

-- name: get_notification_channel
SELECT {notification_channels.*} FROM notification_channels WHERE org_id = $1 AND name = $2

-- name: delete_notification_channel
DELETE FROM notification_channels WHERE org_id = $1 AND name = $2 RETURNING name

-- name: set_notification_rule
-- Create the rule $2 of the org $1, or replace it.
INSERT INTO notification_rules (org_id, name, rules, min_severity, dag_name, job_name, task_type, tag, channels,
    escalate_after_seconds, escalate_to)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
ON CONFLICT (org_id, name) DO UPDATE SET rules = excluded.rules, min_severity = excluded.min_severity,
    dag_name = excluded.dag_name, job_name = excluded.job_name, task_type = excluded.task_type, tag = excluded.tag,
    channels = excluded.channels, escalate_after_seconds = excluded.escalate_after_seconds,
    escalate_to = excluded.escalate_to, updated_at = now()
RETURNING {notification_rules.*}

-- name: list_notification_rules
-- Rules of the orgs $1 by name.
SELECT {notification_rules.*} FROM notification_rules WHERE org_id = ANY ($1::uuid[]) ORDER BY org_id, name

-- name: delete_notification_rule
DELETE FROM notification_rules WHERE org_id = $1 AND name = $2 RETURNING name

-- name: has_notification_work
-- Whether a pass at $1 has something to do: most have not.
SELECT EXISTS (
        SELECT FROM incidents WHERE opened_routed_at IS NULL OR (closed_at IS NOT NULL AND closed_routed_at IS NULL))
    OR EXISTS (SELECT FROM incidents WHERE escalate_at IS NOT NULL AND escalate_at <= coalesce($1::timestamptz, now())
        AND closed_at IS NULL AND acknowledged_at IS NULL AND snoozed_until IS NULL)
    OR EXISTS (SELECT FROM incidents WHERE snoozed_until IS NOT NULL AND snoozed_until <= coalesce($1::timestamptz, now())
        AND closed_at IS NULL)
    OR EXISTS (SELECT FROM notifications WHERE task_id IS NULL AND due_at <= coalesce($1::timestamptz, now()))
    OR EXISTS (SELECT FROM notifications WHERE delivered_at IS NULL AND task_id IS NOT NULL)

-- name: lock_unrouted_incidents
-- The first $1 incidents for which no messages were planned since they were opened or closed.
SELECT {incidents.*}, opened_routed_at, coalesce($2::timestamptz, now()) AS now FROM incidents
WHERE opened_routed_at IS NULL OR (closed_at IS NOT NULL AND closed_routed_at IS NULL)
ORDER BY id LIMIT $1 FOR NO KEY UPDATE SKIP LOCKED

-- name: lock_escalating_incidents
-- The first $1 open incidents that have to be escalated: neither acknowledged nor snoozed in time.
SELECT {incidents.*}, coalesce($2::timestamptz, now()) AS now FROM incidents
WHERE escalate_at IS NOT NULL AND escalate_at <= coalesce($2::timestamptz, now()) AND closed_at IS NULL
  AND acknowledged_at IS NULL AND snoozed_until IS NULL
ORDER BY escalate_at LIMIT $1 FOR NO KEY UPDATE SKIP LOCKED

-- name: lock_woken_incidents
-- The first $1 open incidents after the end of their snooze.
SELECT {incidents.*}, coalesce($2::timestamptz, now()) AS now FROM incidents
WHERE snoozed_until IS NOT NULL AND snoozed_until <= coalesce($2::timestamptz, now()) AND closed_at IS NULL
ORDER BY snoozed_until LIMIT $1 FOR NO KEY UPDATE SKIP LOCKED

-- name: mark_incidents_routed
-- Messages are planned for the incidents $1: of their opening, and of their end ($2); $3 is when they are escalated.
UPDATE incidents i SET opened_routed_at = coalesce(i.opened_routed_at, now()),
    closed_routed_at = CASE WHEN u.closed THEN now() ELSE i.closed_routed_at END,
    escalate_at = CASE WHEN i.opened_routed_at IS NULL THEN u.escalate_at ELSE i.escalate_at END
FROM unnest($1::bigint[], $2::boolean[], $3::timestamptz[]) AS u (id, closed, escalate_at)
WHERE i.id = u.id AND i.id = ANY ($1::bigint[])

-- name: mark_incidents_escalated
UPDATE incidents SET escalated_at = coalesce($2::timestamptz, now()), escalate_at = NULL WHERE id = ANY ($1::bigint[])

-- name: mark_incidents_woken
UPDATE incidents SET snoozed_until = NULL WHERE id = ANY ($1::bigint[])

-- name: plan_notifications
-- Plan messages: of the org $1, about the incident $2, to the channel $3, of the event $4, due at $5. Each event of an
-- incident is sent to a channel once, except for reminders.
INSERT INTO notifications (org_id, incident_id, channel, event, due_at)
SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::text[], $4::text[], $5::timestamptz[])
ON CONFLICT (incident_id, channel, event) WHERE event <> 'reminder' DO NOTHING

-- name: list_channels_of_incidents
-- Channels that messages about the incidents $1 were planned for.
SELECT DISTINCT incident_id, channel FROM notifications WHERE incident_id = ANY ($1::bigint[]) ORDER BY 1, 2

-- name: lock_due_notifications
-- The first $1 notifications that are due, whether they were held back for a digest, and
-- the number of messages sent to their channel in the last $2 seconds.
WITH due AS MATERIALIZED (
    SELECT id, org_id, channel, due_at > created_at + interval '1 second' AS held FROM notifications
    WHERE task_id IS NULL AND due_at <= coalesce($3::timestamptz, now()) ORDER BY due_at, id LIMIT $1
    FOR NO KEY UPDATE SKIP LOCKED
)
SELECT d.id, d.org_id, d.channel, d.held, s.sent FROM due d JOIN (
    SELECT c.org_id, c.channel, (
        SELECT count(DISTINCT n.task_id) FROM notifications n
        WHERE n.org_id = c.org_id AND n.channel = c.channel AND n.task_id IS NOT NULL
          AND n.sent_at > coalesce($3::timestamptz, now()) - $2::float8 * interval '1 second') AS sent
    FROM (SELECT DISTINCT org_id, channel FROM due) AS c) AS s USING (org_id, channel)
ORDER BY d.org_id, d.channel, d.id

-- name: mark_notifications_sent
-- The notifications $1 are delivered by the tasks $2.
UPDATE notifications n SET task_id = u.task_id, sent_at = coalesce($3::timestamptz, now())
FROM unnest($1::bigint[], $2::bigint[]) AS u (id, task_id) WHERE n.id = u.id AND n.id = ANY ($1::bigint[])

-- name: mark_notifications_delivered
-- Mark up to $1 notifications as delivered: those of completed tasks.
WITH done AS MATERIALIZED (
    SELECT n.id, t.completed_at FROM notifications n CROSS JOIN LATERAL (
        SELECT t.completed_at FROM tasks t WHERE t.id = n.task_id AND t.status = 'COMPLETED' OFFSET 0) AS t
    WHERE n.delivered_at IS NULL AND n.task_id IS NOT NULL ORDER BY n.id LIMIT $1
)
UPDATE notifications n SET delivered_at = d.completed_at FROM done d
WHERE n.id = d.id AND n.id = ANY (ARRAY(SELECT id FROM done)) AND n.delivered_at IS NULL

-- name: has_undelivered_notifications
SELECT EXISTS (SELECT FROM notifications WHERE delivered_at IS NULL AND task_id IS NOT NULL)

-- name: load_notifications
-- The notifications $1 with their incidents, as far as they are those of the delivery $2: the arguments of a task in the
-- queue of deliveries may be of its submitter.
SELECT n.id AS notification_id, n.event, i.*
FROM notifications n CROSS JOIN LATERAL (SELECT {incidents.*} FROM incidents WHERE id = n.incident_id OFFSET 0) AS i
WHERE n.id = ANY ($1::bigint[]) AND n.task_id = $2 ORDER BY n.id

-- name: list_notifications
-- Notifications of the org $1 before the id $2, newest first, at most $3; of the incident $4 (NULL: any).
SELECT n.id, n.incident_id, n.channel, n.event, n.created_at, n.due_at, n.sent_at, n.delivered_at, n.task_id, i.title,
    (SELECT t.error FROM tasks t WHERE t.id = n.task_id AND n.delivered_at IS NULL) AS error
FROM notifications n CROSS JOIN LATERAL (SELECT i.title FROM incidents i WHERE i.id = n.incident_id OFFSET 0) AS i
WHERE n.org_id = $1 AND n.id < $2 AND ($4::bigint IS NULL OR n.incident_id = $4)
ORDER BY n.org_id DESC, n.id DESC LIMIT $3

-- name: list_failing_channels
-- Channels of the org $1 with an open incident.
SELECT task_type AS channel, cause, opened_at FROM incidents
WHERE org_id = $1 AND rule = 'channel_failing' AND closed_at IS NULL ORDER BY 1

-- name: close_channel_incidents
-- Close incidents of channels to which a message was delivered after the last failure.
UPDATE incidents i SET closed_at = coalesce($1::timestamptz, now()), closed_by = 'recovery', snoozed_until = NULL
WHERE i.id = ANY (ARRAY(SELECT i.id FROM incidents i WHERE i.closed_at IS NULL AND i.rule = 'channel_failing'))
  AND (
    SELECT n.id FROM notifications n WHERE n.org_id = i.org_id AND n.channel = i.task_type AND n.task_id IS NOT NULL
      AND n.sent_at > i.last_at - interval '30 days' AND n.delivered_at > i.last_at LIMIT 1) IS NOT NULL
