"""Notifications about incidents: messages, their form for each type of channel, and how they are sent.

- `messages`: what a message says about incidents, limited to what the channel's roles may read
- `payloads`: the form of a message for webhooks, Slack, Teams, PagerDuty and e-mail
- `smtp`: sends e-mail
- `channel_sender`: sends a message to a channel, with its secrets

Next: aaiclick.store.engine.notification_deliveries, which plans the messages, and aaiclick.orchestration.loops, which
runs it.
"""
