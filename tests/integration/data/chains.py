"""Random chains of operations on Objects, compared with the same chains in polars.

    python -m tests.integration.data.chains --chains 10000 [--seed 0] [--concurrent 4]

The command prints the differences and exits with status 1 if there are any. `test_chains.py` runs a few chains of
Hypothesis's choice. Where docs/values.md has a rule of its own, the polars side spells that rule out.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import math
import random
import sys
from collections import Counter

from aaiclick.data import DataContext, create_object_from_value
from aaiclick.data.errors import QueryError
from tests.integration.data.chain_expressions import random_frame
from tests.integration.data.chain_steps import STEPS


class Chain:
    """One random chain; `steps` describes it."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.frame = random_frame(self.chance)
        self.other = random_frame(self.chance).select("k", "i", "s").rename({"i": "oi", "s": "os"})
        self.steps: list[str] = []
        self.objects: tuple = ()

    async def run(self):
        """Return the Object and the frame that the chain gives."""
        self.objects = (await create_object_from_value(self.frame), await create_object_from_value(self.other))
        obj, frame = self.objects[0], self.frame
        for _ in range(self.chance.randint(2, 6)):
            step = self.chance.choice(STEPS)
            changed = step(self, obj, frame)
            if inspect.isawaitable(changed):
                changed = await changed
            if changed is not None:
                self.steps.append(step.__name__)
                obj, frame = changed
        return obj, frame

    def unused(self, names, prefix):
        return next(f"{prefix}{n}" for n in range(100) if f"{prefix}{n}" not in names)


def equals(a, b) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)
    return type(a) is type(b) and a == b


async def run_chain(seed: int) -> str | None:
    """Run one chain; return a description of the first difference, or "refused", or None."""
    chain = Chain(seed)
    try:
        obj, frame = await chain.run()
        actual = await obj.data()
    except QueryError as error:
        is_refused = "does not fit" in str(error) or "outside of 1900 to 2299" in str(error)
        return "refused" if is_refused else f"seed {seed} {chain.steps}: {str(error)[:300]}"
    expected = frame.to_dict(as_series=False)
    if list(actual) != list(expected):
        return f"seed {seed} {chain.steps}: columns {list(actual)} are not {list(expected)}"
    for name, values in expected.items():
        if len(values) != len(actual[name]) or not all(map(equals, actual[name], values)):
            return f"seed {seed} {chain.steps}: {name} is {actual[name]}, not {values}"
    return None


async def run_chains(first: int, count: int, concurrent: int) -> tuple[Counter, list[str]]:
    seeds = iter(range(first, first + count))
    results: Counter = Counter()
    differences: list[str] = []

    async def work() -> None:
        for seed in seeds:
            outcome = await run_chain(seed)
            results["equal" if outcome is None else "refused" if outcome == "refused" else "different"] += 1
            if outcome not in (None, "refused"):
                differences.append(outcome)
                print(outcome, flush=True)
            if sum(results.values()) % 1000 == 0:
                print(dict(results), flush=True)

    async with DataContext():
        await asyncio.gather(*(work() for _ in range(concurrent)))
    return results, differences


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chains", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--concurrent", type=int, default=4)
    arguments = parser.parse_args()
    results, differences = asyncio.run(run_chains(arguments.seed, arguments.chains, arguments.concurrent))
    print(dict(results))
    sys.exit(1 if differences else 0)


if __name__ == "__main__":
    main()
