"""Alert rules for Prometheus and a dashboard for Grafana, over the metrics of `/metrics`.

`alerts.yaml` and `dashboard.json` are printed by `aaiclick monitoring`.

Next: aaiclick.server.metrics, which exports the metrics.
"""
