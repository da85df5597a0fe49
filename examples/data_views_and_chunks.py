"""Process a large Object in chunks: each View reads only its own rows.

python examples/data_views_and_chunks.py
"""

from __future__ import annotations

import asyncio
import json

from aaiclick.data import DataContext, create_object_from_query, open_reference


async def main() -> None:
    async with DataContext():
        numbers = await create_object_from_query("SELECT toInt64(number) AS n FROM numbers(1000000) ORDER BY number")

        chunks = await numbers.chunks(250_000)
        totals = await asyncio.gather(*(chunk["n"].sum().data() for chunk in chunks))
        print("chunk totals   ", totals)

        even = numbers.view(offset=10, limit=3, where="n % 2 = 0 AND n > 100")
        form = json.dumps(even.to_dict())
        print("serialised     ", form)
        print("opened again   ", await (await open_reference(json.loads(form))).data())


if __name__ == "__main__":
    asyncio.run(main())
