"""The worker: a supervisor and its warm processes, each running many tasks at once."""
