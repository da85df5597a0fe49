"""`reset_outputs` of sources: every version begins with empty generations, and earlier rows stay."""

from __future__ import annotations

import pytest

from aaiclick.catalog.deploy import deploy, roll_back
from tests.integration.catalog.conftest import SHOP, order

MANUAL = SHOP.replace('{kind: cron, schedule: "0 6 * * *", missed: all}', "{kind: manual}")
RESET = MANUAL.replace("    outputs: [raw]\n", "    bootstrap: {reset_outputs: true}\n    outputs: [raw]\n")
RESET_AGAIN = RESET.replace("max_attempts: 5", "max_attempts: 4")
CRON_RESET = SHOP.replace("    outputs: [raw]\n", "    bootstrap: {reset_outputs: true}\n    outputs: [raw]\n")


@pytest.mark.parametrize(("first", "second"), [(MANUAL, RESET), (RESET, RESET_AGAIN)])
async def test_each_version_begins_empty_and_a_rollback_has_the_old_rows(shop, first, second):
    await shop.deploy(first)
    await shop.run(order(1, 1, 10), order(2, 2, 20))
    assert (await shop.deploy(second)).serves
    await shop.run(order(3, 1, 30))
    assert await shop.rows("shop.raw") == [(3, "2026-01-01", 30)]
    assert await shop.rows("daily") == [("2026-01-01", 30)]  # without the day that is gone
    await shop.run(order(4, 1, 40))
    assert await shop.rows("shop.raw") == [(3, "2026-01-01", 30), (4, "2026-01-01", 40)]
    await roll_back(shop.db, "shop")
    assert await shop.rows("shop.raw") == [(1, "2026-01-01", 10), (2, "2026-01-02", 20)]
    assert await shop.rows("daily") == [("2026-01-01", 10), ("2026-01-02", 20)]
    await shop.check()


async def test_first_run_without_rows_empties_output(shop):
    await shop.deploy(MANUAL)
    await shop.run(order(1, 1, 10))
    await shop.deploy(RESET)
    job_id = await shop.fire({"rows": []})
    assert await shop.finish(job_id) == "COMPLETED"
    assert not await shop.rows("shop.raw")
    assert not await shop.rows("daily")


async def test_a_reset_cron_source_is_filled_before_its_version_serves(shop):
    await shop.deploy()
    await shop.run(order(9, 9, 90))
    started = await deploy(shop.db, CRON_RESET)
    assert not started.serves
    assert await shop.rows("shop.raw") == [(9, "2026-01-09", 90)]
    assert await shop.finish(started.job_id) == "COMPLETED"
    assert await shop.rows("daily") == [("2026-01-09", 90)]
    await deploy(shop.db, CRON_RESET, resume=True)
    assert len(await shop.rows("shop.raw")) == 6
    assert "2026-01-09" not in {day for day, _ in await shop.rows("daily")}
