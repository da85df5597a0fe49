"""Random chains of operations return what polars returns; `make conformance` runs thousands."""

from __future__ import annotations

import hypothesis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from tests.integration.data.chains import run_chain


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@hypothesis.given(seed=st.integers(0, 2**32))
async def test_random_chains_equal_polars(data, seed):
    assert await run_chain(seed) in (None, "refused")
