"""The synchronous API for scripts and notebooks.

python examples/data_without_await.py
"""

from __future__ import annotations

from aaiclick.data import sync
from aaiclick.data.sync import col


def main() -> None:
    with sync.DataContext():
        sales = sync.create_object_from_value({"shop": ["n", "s", "n"], "price": [2, 3, 7]})
        print("per shop       ", sales.group_by("shop").agg(total=col("price").sum()).data())
        print("above the mean ", sales[sales["price"] > sales["price"].mean()].rows())
        print("in batches     ", [batch.num_rows for batch in sales.iter_batches()])


if __name__ == "__main__":
    main()
