"""Read and write files, and store an Object under a name.

python examples/data_files.py
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from aaiclick.data import DataContext, col, create_object_from_file, delete_object, list_objects, open_object

CSV = """day,city,temperature
2024-01-01,Berlin,3.5
2024-01-01,Oslo,-7.0
2024-01-02,Berlin,
2024-01-02,Oslo,-9.5
"""


async def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "weather.csv"
        path.write_text(CSV)
        async with DataContext():
            await create_object_from_file(path, name="example weather", replace=True)
        async with DataContext():
            weather = await open_object("example weather")
            print("columns        ", {name: str(column_type) for name, column_type in weather.schema.items()})
            coldest = weather.drop_nulls().sort("temperature").head(1)
            print("coldest        ", await coldest.data())
            monthly = weather.group_by("city", month=col("day").dt.truncate("month")).agg(col("temperature").mean())
            written = await monthly.export(Path(directory) / "monthly.parquet")
            print("written        ", written.name, written.stat().st_size > 0)
            print("read again     ", await (await create_object_from_file(written)).rows())
            await delete_object("example weather")
            print("left behind    ", "example weather" in await list_objects())


if __name__ == "__main__":
    asyncio.run(main())
