"""Runtimes elsewhere: queues of SQS that say which tasks are ready, functions of Lambda that are given one.

Neither decides anything. A message may come twice, late or never: it only says that there is something to claim, and
the claim in PostgreSQL is what gives a task to one attempt. docs/runtimes.md says how to set them up.
"""
