"""`aaiclick monitoring`: print the alert rules and the dashboard."""

from __future__ import annotations

from importlib.resources import files

import click

FILES = files("aaiclick.monitoring")


@click.group()
def monitoring() -> None:
    """Print alert rules for Prometheus and a dashboard for Grafana.

    \b
    aaiclick monitoring alerts > alerts.yaml
    """


@monitoring.command("alerts")
def print_alerts() -> None:
    """Print alert rules for Prometheus."""
    click.echo((FILES / "alerts.yaml").read_text(encoding="utf-8"), nl=False)


@monitoring.command("dashboard")
def print_dashboard() -> None:
    """Print a dashboard to import in Grafana."""
    click.echo((FILES / "dashboard.json").read_text(encoding="utf-8"), nl=False)
