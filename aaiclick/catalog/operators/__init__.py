"""Operators of definitions: registry, typed settings, and the pure part of their logic.

- `registry`: registry of built-in operators and plug-ins
- `config`: built-in operators and the schemas of their settings
- `follower_state`: next range to fetch, from the cursor and the tip of a source
- `integer_ranges`: cursor and pending ranges of an aggregator
- `alert_state`: state machine of an alert

Next: aaiclick.catalog.execution, which runs them.
"""
