"""The web UI: pages rendered by the server; scripts refresh them, and everything works without scripts.

- `dispatch`: dispatch of requests between the web UI and the API
- `app`: ASGI application of the web UI, including its error pages
- `state`: shared state of the web UI
- `routing`: registration of pages; permission and CSRF checks
- `sessions`: browser sessions: a cookie with a random token
- `oidc_login`: login at an identity provider
- `sign_in_audit`: audit entries of sign-ins, rate-limited
- `pages`: page handlers, one module per subject
- `read_transaction`: read-only transaction for pages that list rows of large tables
- `metrics_sampler`: in-memory metrics of the last hour and day, for charts
- `svg`: geometry of charts and graphs
- `template_filters`: template filters: numbers, durations, times and states
- `templating`: Jinja environment
- `parameter_form`: forms of the parameters of a job
- `flash`: flash messages in a short-lived cookie
- `refresh_interval`: refresh interval of open pages
- `static_files`: static files with a content hash in the URL
- `templates`: Jinja templates
- `static`: scripts and styles

Next: aaiclick.operations and aaiclick.store.ui.
"""
