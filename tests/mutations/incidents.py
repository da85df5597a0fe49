"""Mutations of incidents and notifications."""

from __future__ import annotations

from tests.mutations import Mutation
from tests.mutations.engine import SQL

INCIDENTS = "tests/integration/engine/test_incidents.py"
SOURCES = "tests/integration/catalog/test_incident_sources.py"
DELIVERIES = "tests/integration/engine/test_notification_deliveries.py"
SINKS = "tests/integration/orchestration/test_notification_delivery.py"
HOSTILE = "tests/integration/orchestration/test_hostile_channels.py"
RULES = "tests/unit/engine/test_notification_rules.py"
ACKNOWLEDGE = "aaiclick/store/engine/acknowledge.py"
SENDER = "aaiclick/orchestration/notifications"

INCIDENT_MUTATIONS = (
    Mutation(
        "incidents: a failed task opens one in its transaction", ACKNOWLEDGE,
        "await record_failed_tasks(connection, ended, now)", "pass",
        (f"{INCIDENTS}::test_final_failure_opens_one_incident_of_the_job",),
    ),
    Mutation(
        "incidents: only final failures open one", "aaiclick/store/engine/incidents.py",
        'row["status"] in FAILED_STATUSES or', 'row["status"] in (*FAILED_STATUSES, "RETRY") or',
        (f"{INCIDENTS}::test_final_failure_opens_one_incident_of_the_job",),
    ),
    Mutation(
        "incidents: a repeated failure appends an occurrence", f"{SQL}/incidents.sql",
        "WHERE NOT EXISTS (\n        SELECT FROM opened",
        "WHERE EXISTS (\n        SELECT FROM opened",
        (f"{INCIDENTS}::test_failures_of_one_fingerprint_are_counted_in_one_incident",),
    ),
    Mutation(
        "incidents: a repeated failure does not wait for the open one", f"{SQL}/incidents.sql",
        "FROM given g WHERE (\n        SELECT i.id", "FROM given g WHERE true OR (\n        SELECT i.id",
        (f"{INCIDENTS}::test_failures_of_an_open_incident_do_not_wait_for_its_row",),
    ),
    Mutation(
        "incidents: an occurrence after the end opens it again", f"{SQL}/incidents.sql",
        "i.closed_at < t.last_at AS is_over", "false AS is_over",
        (f"{INCIDENTS}::test_occurrence_after_the_end_of_an_incident_opens_it_again",),
    ),
    Mutation(
        "incidents: recovery waits for a quiet time", f"{SQL}/incidents.sql",
        "WHERE i.last_at <= coalesce($4::timestamptz, now()) - $3::float8 * interval '1 second' AND CASE",
        "WHERE CASE", (f"{INCIDENTS}::test_incident_closes_after_a_later_job_of_the_name_completed",),
    ),
    Mutation(
        "incidents: a start that fails opens one", "aaiclick/orchestration/loops/scheduler.py",
        "            await _open_incident(connection, row, message)", "            pass",
        (f"{SOURCES}::test_source_that_cannot_start_has_an_incident_until_it_does",),
    ),
    Mutation(
        "incidents: a source is Dead for five minutes first", f"{SQL}/incidents.sql",
        "now()) - $1::float8 * interval '1 second'\n  AND (SELECT i.id", "now())\n  AND (SELECT i.id",
        (f"{SOURCES}::test_dead_source_opens_incident_after_five_minutes",),
    ),
    Mutation(
        "incidents: one of a Dead source ends with that", f"{SQL}/incidents.sql",
        "AND d.status = 'Dead' LIMIT 1) IS NULL", "LIMIT 1) IS NULL",
        (f"{SOURCES}::test_dead_source_opens_incident_after_five_minutes",),
    ),
    Mutation(
        "incidents: one of an unroutable event ends with that", f"{SQL}/incidents.sql",
        "WHEN i.rule = 'event_unroutable' THEN (", "WHEN false THEN (",
        (f"{SOURCES}::test_unroutable_event_and_alert_of_removed_definition_close",),
    ),
    Mutation(
        "notifications: each event once per channel", f"{SQL}/notifications.sql",
        "ON CONFLICT (incident_id, channel, event) WHERE event <> 'reminder' DO NOTHING", "",
        (f"{DELIVERIES}::test_event_of_an_incident_is_planned_once_per_channel",),
    ),
    Mutation(
        "notifications: routed incidents are marked", "aaiclick/store/engine/notification_deliveries.py",
        'statement("mark_incidents_routed"),\n            [row["id"] for row in unrouted],',
        'statement("mark_incidents_routed"),\n            [0 for row in unrouted],',
        (f"{DELIVERIES}::test_incident_is_announced_and_its_end_too",),
    ),
    Mutation(
        "notifications: sent ones are marked", f"{SQL}/notifications.sql",
        "SET task_id = u.task_id, sent_at", "SET sent_at",
        (f"{DELIVERIES}::test_incident_is_announced_and_its_end_too",),
    ),
    Mutation(
        "notifications: messages of a channel are bounded", "aaiclick/store/engine/notification_deliveries.py",
        "if len(messages) <= left:", "if True:",
        (f"{RULES}::test_messages_of_a_channel_are_bounded",),
    ),
    Mutation(
        "notifications: acknowledged incidents are not escalated", f"{SQL}/notifications.sql",
        "AND acknowledged_at IS NULL AND snoozed_until IS NULL", "",
        (f"{DELIVERIES}::test_snoozed_incident_is_announced_again_if_it_is_still_open",),
    ),
    Mutation(
        "notifications: roles of the channel", f"{SENDER}/messages.py", 'row["id"] in hidden)', "False)",
        (f"{SINKS}::test_cause_is_hidden_from_a_channel_without_the_role",),
    ),
    Mutation(
        "notifications: secrets are redacted in errors", f"{SENDER}/channel_sender.py", "redactor.redact(error.what)",
        "error.what", (f"{SINKS}::test_message_is_kept_until_a_channel_works_again",),
    ),
    Mutation(
        "incidents: the cause is that of the task", f"{SQL}/incidents.sql", "coalesce(e.error, i.cause) AS cause",
        "i.cause AS cause", (f"{INCIDENTS}::test_cause_of_an_incident_is_that_of_the_task_that_it_names",),
    ),
    Mutation(
        "notifications: a mail server that is too slow is disconnected", f"{SENDER}/smtp.py",
        "        connection.end()\n        raise", "        raise",
        (f"{HOSTILE}::test_slow_mail_server_keeps_no_thread",),
    ),
    Mutation(
        "notifications: replies of a mail server are bounded", f"{SENDER}/smtp.py", "if self._left < 0:", "if False:",
        (f"{HOSTILE}::test_endless_reply_of_a_mail_server_is_ended",),
    ),
    Mutation(
        "notifications: answers are quoted for channels without roles only", f"{SENDER}/channel_sender.py",
        "not channel.roles if quotes_answer is None else quotes_answer", "True",
        (f"{SINKS}::test_answer_that_repeats_a_message_for_a_role_is_not_shown_to_all",),
    ),
    Mutation(
        "notifications: only public addresses", f"{SENDER}/channel_sender.py", "guarded_session(allow_private=False)",
        "guarded_session(allow_private=True)", (f"{SINKS}::test_private_address_is_refused",),
    ),
    Mutation(
        "notifications: two deliveries of a channel at once", "aaiclick/store/engine/notification_deliveries.py",
        "concurrency_limit=MAX_DELIVERIES_AT_ONCE", "concurrency_limit=9",
        (f"{SINKS}::test_slow_channel_does_not_delay_another",),
    ),
)  # fmt: skip
