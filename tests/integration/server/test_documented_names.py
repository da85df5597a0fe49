"""docs/internals/names.md: metrics are served, and indexes, constraints and triggers are in the database."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.names_page import Row, read_rows
from tests.reference_pages import METRICS_PAGE, render_metrics_page


def test_documented_metrics_are_served(site):
    text = site.as_("operator-reader").get("/metrics").text
    families = {
        family.name + ("_total" if family.type == "counter" else "") for family in text_string_to_metric_families(text)
    }
    for row in read_rows("Metrics"):
        assert set(row.ours) <= families, row.text


def test_metrics_page_describes_every_metric(site):
    assert METRICS_PAGE.read_text() == render_metrics_page(site.as_("operator-reader").get("/metrics").text)


@pytest.mark.parametrize("row", read_rows("Indexes and constraints"), ids=str)
def test_documented_indexes_and_constraints_exist(site, row: Row):
    existing = {
        row_of_name["name"]
        for row_of_name in site.sql(
            "SELECT indexname AS name FROM pg_indexes UNION SELECT conname FROM pg_constraint"
            " UNION SELECT tgrelid::regclass || '.' || tgname FROM pg_trigger"
        )
    }
    assert set(row.ours) <= existing
