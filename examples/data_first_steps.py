"""Create Objects from values, compute with expressions, and read the results.

python examples/data_first_steps.py
"""

from __future__ import annotations

import asyncio

from aaiclick.data import DataContext, col, create_object_from_value, length


async def main() -> None:
    async with DataContext():
        a = await create_object_from_value([3, 1, 2])
        b = await create_object_from_value([10, 30, 20])
        print("a + b          ", await (a + b).data())
        print("a - mean of a  ", await (a - a.mean()).data())
        print("where b > 15   ", await a[b > 15].data())

        sales = await create_object_from_value(
            {"shop": ["north", "south", "north", "south"], "item": ["pen", "pen", "ink", None], "price": [2, 3, 7, 5]}
        )
        by_shop = sales.group_by("shop").agg(total=col("price").sum(), sold=length(), highest=col("price").max())
        print("by shop        ", await by_shop.data())

        total = ((sales["price"] + 1) * 2).sum()
        print("one query      ", total.sql(pretty=False))
        print("its result     ", await total.data())


if __name__ == "__main__":
    asyncio.run(main())
