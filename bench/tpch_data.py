"""Deterministic data with the tables, types and value distributions of TPC-H, from NumPy.

Sparse order keys, random texts and the retail price formula follow the specification; the values are not those of
`dbgen`.
"""

# ruff: noqa: SIM905  (lists of words)

from __future__ import annotations

from datetime import date

import numpy as np
import pyarrow as pa

REGIONS = ["AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST"]
NATIONS = [
    ("ALGERIA", 0), ("ARGENTINA", 1), ("BRAZIL", 1), ("CANADA", 1), ("EGYPT", 4), ("ETHIOPIA", 0), ("FRANCE", 3),
    ("GERMANY", 3), ("INDIA", 2), ("INDONESIA", 2), ("IRAN", 4), ("IRAQ", 4), ("JAPAN", 2), ("JORDAN", 4), ("KENYA", 0),
    ("MOROCCO", 0), ("MOZAMBIQUE", 0), ("PERU", 1), ("CHINA", 2), ("ROMANIA", 3), ("SAUDI ARABIA", 4), ("VIETNAM", 2),
    ("RUSSIA", 3), ("UNITED KINGDOM", 3), ("UNITED STATES", 1),
]  # fmt: skip
COLORS = (
    "almond antique aquamarine azure beige bisque black blanched blue blush brown burlywood burnished chartreuse "
    "chiffon chocolate coral cornflower cornsilk cream cyan dark deep dim dodger drab firebrick floral forest frosted "
    "gainsboro ghost goldenrod green grey honeydew hot indian ivory khaki lace lavender lawn lemon light lime linen "
    "magenta maroon medium metallic midnight mint misty moccasin navajo navy olive orange orchid pale papaya peach "
    "peru pink plum powder puff purple red rose rosy royal saddle salmon sandy seashell sienna sky slate smoke snow "
    "spring steel tan thistle tomato turquoise violet wheat white yellow"
).split()
TYPE_WORDS = (
    ["STANDARD", "SMALL", "MEDIUM", "LARGE", "ECONOMY", "PROMO"],
    ["ANODIZED", "BURNISHED", "PLATED", "POLISHED", "BRUSHED"],
    ["TIN", "NICKEL", "BRASS", "STEEL", "COPPER"],
)
CONTAINER_WORDS = (
    ["SM", "LG", "MED", "JUMBO", "WRAP"],
    ["CASE", "BOX", "BAG", "JAR", "PKG", "PACK", "CAN", "DRUM"],
)
SEGMENTS = ["AUTOMOBILE", "BUILDING", "FURNITURE", "MACHINERY", "HOUSEHOLD"]
PRIORITIES = ["1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW"]
MODES = ["REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB"]
INSTRUCTIONS = ["DELIVER IN PERSON", "COLLECT COD", "NONE", "TAKE BACK RETURN"]
WORDS = (
    "furiously carefully quickly blithely slyly ironic final regular express pending special bold even silent unusual "
    "requests deposits packages accounts instructions theodolites foxes pinto beans ideas dependencies platelets sleep "
    "wake haggle nag cajole boost along the among above after against across Customer Complaints"
).split()
FIRST_DAY, LAST_DAY = date(1992, 1, 1), date(1998, 8, 2)
EPOCH = date(1970, 1, 1)
CURRENT_DAY = (date(1995, 6, 17) - EPOCH).days


def decimals(cents: np.ndarray) -> pa.Array:
    """Return hundredths as Decimal(15, 2)."""
    halves = np.empty((len(cents), 2), np.int64)
    halves[:, 0], halves[:, 1] = cents, cents >> 63
    return pa.Array.from_buffers(pa.decimal128(15, 2), len(cents), [None, pa.py_buffer(halves.tobytes())])


def days(values: np.ndarray) -> pa.Array:
    return pa.array(values.astype(np.int32)).cast(pa.date32())


def choose(rng: np.random.Generator, values: list[str], size: int) -> pa.Array:
    indices = pa.array(rng.integers(0, len(values), size).astype(np.int32))
    return pa.array(values).take(indices)


def sentences(rng: np.random.Generator, size: int, length: int) -> pa.Array:
    """Return comments: slices of one long random text."""
    text = " ".join(rng.choice(WORDS, 20_000))
    starts = rng.integers(0, len(text) - length, 4000)
    return choose(rng, [text[start : start + length] for start in starts], size)


def numbered(prefix: str, keys: np.ndarray) -> pa.Array:
    return pa.array(np.char.add(prefix, np.char.zfill(keys.astype(str), 9)).tolist())


def phones(rng: np.random.Generator, nations: np.ndarray) -> pa.Array:
    parts = rng.integers(100, 1000, (2, len(nations)))
    last = rng.integers(1000, 10000, len(nations))
    return pa.array([f"{n + 10}-{a}-{b}-{c}" for n, a, b, c in zip(nations, *parts, last, strict=True)])


def retail_cents(keys: np.ndarray) -> np.ndarray:
    return 90000 + (keys // 10) % 20001 + 100 * (keys % 1000)


def part_table(rng: np.random.Generator, size: int) -> pa.Table:
    keys = np.arange(1, size + 1)
    makers = rng.integers(1, 6, size)
    brands = makers * 10 + rng.integers(1, 6, size)
    types = [" ".join((a, b, c)) for a in TYPE_WORDS[0] for b in TYPE_WORDS[1] for c in TYPE_WORDS[2]]
    containers = [f"{a} {b}" for a in CONTAINER_WORDS[0] for b in CONTAINER_WORDS[1]]
    names = rng.integers(0, len(COLORS), (size, 5))
    return pa.table(
        {
            "p_partkey": keys,
            "p_name": pa.array([" ".join(COLORS[i] for i in row) for row in names]),
            "p_mfgr": pa.array([f"Manufacturer#{n}" for n in makers]),
            "p_brand": pa.array([f"Brand#{n}" for n in brands]),
            "p_type": choose(rng, types, size),
            "p_size": rng.integers(1, 51, size),
            "p_container": choose(rng, containers, size),
            "p_retailprice": decimals(retail_cents(keys)),
            "p_comment": sentences(rng, size, 14),
        }
    )


def supplier_of(part: np.ndarray, number: np.ndarray, suppliers: int) -> np.ndarray:
    """Return the key of the i-th supplier of a part, by the formula of the specification."""
    return (part + number * (suppliers // 4 + (part - 1) // suppliers)) % suppliers + 1


def line_tables(rng: np.random.Generator, size: int, customers: int, parts: int, suppliers: int):
    """Return orders and lineitem."""
    numbers = np.arange(size)
    keys = numbers // 8 * 32 + numbers % 8 + 1
    buyers = rng.integers(0, customers // 3 * 2, size)
    first, last = (FIRST_DAY - EPOCH).days, (LAST_DAY - EPOCH).days
    ordered = rng.integers(first, last + 1, size)
    counts = rng.integers(1, 8, size)
    order_of = np.repeat(numbers, counts)
    lines = len(order_of)
    starts = np.repeat(np.cumsum(counts) - counts, counts)
    part = rng.integers(1, parts + 1, lines)
    quantity = rng.integers(1, 51, lines)
    price = retail_cents(part) * quantity
    discount, tax = rng.integers(0, 11, lines), rng.integers(0, 9, lines)
    shipped = ordered[order_of] + rng.integers(1, 122, lines)
    committed = ordered[order_of] + rng.integers(30, 91, lines)
    received = shipped + rng.integers(1, 31, lines)
    is_open = shipped > CURRENT_DAY
    returned = np.where(received > CURRENT_DAY, 2, rng.integers(0, 2, lines))
    lineitem = pa.table(
        {
            "l_orderkey": keys[order_of],
            "l_partkey": part,
            "l_suppkey": supplier_of(part, rng.integers(0, 4, lines), suppliers),
            "l_linenumber": np.arange(lines) - starts + 1,
            "l_quantity": decimals(quantity * 100),
            "l_extendedprice": decimals(price),
            "l_discount": decimals(discount),
            "l_tax": decimals(tax),
            "l_returnflag": pa.array(["R", "A", "N"]).take(pa.array(returned)),
            "l_linestatus": pa.array(["F", "O"]).take(pa.array(is_open.astype(int))),
            "l_shipdate": days(shipped),
            "l_commitdate": days(committed),
            "l_receiptdate": days(received),
            "l_shipinstruct": choose(rng, INSTRUCTIONS, lines),
            "l_shipmode": choose(rng, MODES, lines),
            "l_comment": sentences(rng, lines, 27),
        }
    )
    totals = np.bincount(order_of, price * (100 - discount) * (100 + tax) / 10_000).round().astype(np.int64)
    open_lines = np.bincount(order_of, is_open)
    status = np.where(open_lines == 0, 0, np.where(open_lines == counts, 1, 2))
    orders = pa.table(
        {
            "o_orderkey": keys,
            "o_custkey": buyers // 2 * 3 + buyers % 2 + 1,  # a third of the customers has no orders
            "o_orderstatus": pa.array(["F", "O", "P"]).take(pa.array(status)),
            "o_totalprice": decimals(totals),
            "o_orderdate": days(ordered),
            "o_orderpriority": choose(rng, PRIORITIES, size),
            "o_clerk": choose(rng, [f"Clerk#{n:09}" for n in range(1, 1001)], size),
            "o_shippriority": np.zeros(size, np.int64),
            "o_comment": sentences(rng, size, 49),
        }
    )
    return orders, lineitem


def make_tables(scale: float) -> dict[str, pa.Table]:
    """Return the eight tables; at scale 1 `lineitem` has about six million rows."""
    rng = np.random.default_rng(19)
    suppliers, parts = int(10_000 * scale), int(200_000 * scale)
    customers, orders = int(150_000 * scale) // 3 * 3, int(1_500_000 * scale)
    supplier_keys, customer_keys = np.arange(1, suppliers + 1), np.arange(1, customers + 1)
    supplier_nations, customer_nations = rng.integers(0, 25, suppliers), rng.integers(0, 25, customers)
    supply_part = np.repeat(np.arange(1, parts + 1), 4)
    order_table, line_table = line_tables(rng, orders, customers, parts, suppliers)
    return {
        "region": pa.table({"r_regionkey": np.arange(5), "r_name": REGIONS, "r_comment": sentences(rng, 5, 60)}),
        "nation": pa.table(
            {
                "n_nationkey": np.arange(25),
                "n_name": [name for name, _ in NATIONS],
                "n_regionkey": [region for _, region in NATIONS],
                "n_comment": sentences(rng, 25, 60),
            }
        ),
        "supplier": pa.table(
            {
                "s_suppkey": supplier_keys,
                "s_name": numbered("Supplier#", supplier_keys),
                "s_address": sentences(rng, suppliers, 25),
                "s_nationkey": supplier_nations,
                "s_phone": phones(rng, supplier_nations),
                "s_acctbal": decimals(rng.integers(-99_999, 1_000_000, suppliers)),
                "s_comment": sentences(rng, suppliers, 62),
            }
        ),
        "part": part_table(rng, parts),
        "partsupp": pa.table(
            {
                "ps_partkey": supply_part,
                "ps_suppkey": supplier_of(supply_part, np.tile(np.arange(4), parts), suppliers),
                "ps_availqty": rng.integers(1, 10_000, parts * 4),
                "ps_supplycost": decimals(rng.integers(100, 100_001, parts * 4)),
                "ps_comment": sentences(rng, parts * 4, 124),
            }
        ),
        "customer": pa.table(
            {
                "c_custkey": customer_keys,
                "c_name": numbered("Customer#", customer_keys),
                "c_address": sentences(rng, customers, 25),
                "c_nationkey": customer_nations,
                "c_phone": phones(rng, customer_nations),
                "c_acctbal": decimals(rng.integers(-99_999, 1_000_000, customers)),
                "c_mktsegment": choose(rng, SEGMENTS, customers),
                "c_comment": sentences(rng, customers, 73),
            }
        ),
        "orders": order_table,
        "lineitem": line_table,
    }
