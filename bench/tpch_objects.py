"""The 22 TPC-H queries with Objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date
from decimal import Decimal

from aaiclick.data import col, length
from aaiclick.data.object import Object

Tables = Mapping[str, Object]
VOLUME = col("l_extendedprice") * (1 - col("l_discount"))


def pricing_summary(t: Tables) -> Object:
    return (
        t["lineitem"]
        .filter(col("l_shipdate") <= date(1998, 9, 2))
        .group_by("l_returnflag", "l_linestatus")
        .agg(
            sum_qty=col("l_quantity").sum(),
            sum_base_price=col("l_extendedprice").sum(),
            sum_disc_price=VOLUME.sum(),
            sum_charge=(VOLUME * (1 + col("l_tax"))).sum(),
            avg_qty=col("l_quantity").mean(),
            avg_price=col("l_extendedprice").mean(),
            avg_disc=col("l_discount").mean(),
            count_order=length(),
        )
    )


def minimum_cost_supplier(t: Tables) -> Object:
    europe = t["region"].filter(col("r_name") == "EUROPE")
    parts = t["part"].filter((col("p_size") == 15) & col("p_type").str.ends_with("BRASS"))
    offers = (
        t["partsupp"]
        .join(parts, left_on="ps_partkey", right_on="p_partkey")
        .join(t["supplier"], left_on="ps_suppkey", right_on="s_suppkey")
        .join(t["nation"], left_on="s_nationkey", right_on="n_nationkey")
        .join(europe, left_on="n_regionkey", right_on="r_regionkey")
    )
    return (
        offers.filter(col("ps_supplycost") == col("ps_supplycost").min().over("ps_partkey"))
        .sort("s_acctbal", "n_name", "s_name", "ps_partkey", descending=[True, False, False, False])
        .head(100)
        .select(
            "s_acctbal", "s_name", "n_name", col("ps_partkey").alias("p_partkey"), "p_mfgr", "s_address", "s_phone",
            "s_comment",
        )
    )  # fmt: skip


def shipping_priority(t: Tables) -> Object:
    day = date(1995, 3, 15)
    return (
        t["lineitem"]
        .join(t["orders"], left_on="l_orderkey", right_on="o_orderkey")
        .join(t["customer"], left_on="o_custkey", right_on="c_custkey")
        .filter(col("c_mktsegment") == "BUILDING", col("o_orderdate") < day, col("l_shipdate") > day)
        .group_by("l_orderkey", "o_orderdate", "o_shippriority")
        .agg(revenue=VOLUME.sum())
        .sort("revenue", "o_orderdate", "l_orderkey", descending=[True, False, False])
        .head(10)
        .select("l_orderkey", "revenue", "o_orderdate", "o_shippriority")
    )


def order_priority(t: Tables) -> Object:
    late = t["lineitem"].filter(col("l_commitdate") < col("l_receiptdate"))
    return (
        t["orders"]
        .filter(col("o_orderdate") >= date(1993, 7, 1), col("o_orderdate") < date(1993, 10, 1))
        .join(late, left_on="o_orderkey", right_on="l_orderkey", how="semi")
        .group_by("o_orderpriority")
        .agg(order_count=length())
    )


def local_supplier_volume(t: Tables) -> Object:
    return (
        t["lineitem"]
        .join(t["orders"], left_on="l_orderkey", right_on="o_orderkey")
        .join(t["customer"], left_on="o_custkey", right_on="c_custkey")
        .join(t["supplier"], left_on=["l_suppkey", "c_nationkey"], right_on=["s_suppkey", "s_nationkey"])
        .join(t["nation"], left_on="c_nationkey", right_on="n_nationkey")
        .join(t["region"], left_on="n_regionkey", right_on="r_regionkey")
        .filter(col("r_name") == "ASIA", col("o_orderdate") >= date(1994, 1, 1), col("o_orderdate") < date(1995, 1, 1))
        .group_by("n_name")
        .agg(revenue=VOLUME.sum())
        .sort("revenue", descending=True)
    )


def revenue_change(t: Tables) -> Object:
    return (
        t["lineitem"]
        .filter(
            col("l_shipdate") >= date(1994, 1, 1),
            col("l_shipdate") < date(1995, 1, 1),
            col("l_discount").between(Decimal("0.05"), Decimal("0.07")),
            col("l_quantity") < 24,
        )
        .select(revenue=(col("l_extendedprice") * col("l_discount")).sum())
    )


def volume_shipping(t: Tables) -> Object:
    sellers = t["nation"].select("n_nationkey", supp_nation=col("n_name"))
    buyers = t["nation"].select("n_nationkey", cust_nation=col("n_name"))
    pair, other = ("FRANCE", "GERMANY"), ("GERMANY", "FRANCE")
    return (
        t["lineitem"]
        .join(t["orders"], left_on="l_orderkey", right_on="o_orderkey")
        .join(t["customer"], left_on="o_custkey", right_on="c_custkey")
        .join(t["supplier"], left_on="l_suppkey", right_on="s_suppkey")
        .join(sellers, left_on="s_nationkey", right_on="n_nationkey")
        .join(buyers, left_on="c_nationkey", right_on="n_nationkey")
        .filter(
            ((col("supp_nation") == pair[0]) & (col("cust_nation") == pair[1]))
            | ((col("supp_nation") == other[0]) & (col("cust_nation") == other[1])),
            col("l_shipdate").between(date(1995, 1, 1), date(1996, 12, 31)),
        )
        .group_by("supp_nation", "cust_nation", l_year=col("l_shipdate").dt.year())
        .agg(revenue=VOLUME.sum())
    )


def national_market_share(t: Tables) -> Object:
    buyers = t["nation"].select("n_nationkey", "n_regionkey")
    sellers = t["nation"].select("n_nationkey", nation=col("n_name"))
    return (
        t["lineitem"]
        .join(t["part"], left_on="l_partkey", right_on="p_partkey")
        .join(t["orders"], left_on="l_orderkey", right_on="o_orderkey")
        .join(t["customer"], left_on="o_custkey", right_on="c_custkey")
        .join(buyers, left_on="c_nationkey", right_on="n_nationkey")
        .join(t["region"], left_on="n_regionkey", right_on="r_regionkey")
        .join(t["supplier"], left_on="l_suppkey", right_on="s_suppkey")
        .join(sellers, left_on="s_nationkey", right_on="n_nationkey")
        .filter(
            col("r_name") == "AMERICA",
            col("o_orderdate").between(date(1995, 1, 1), date(1996, 12, 31)),
            col("p_type") == "ECONOMY ANODIZED STEEL",
        )
        .group_by(o_year=col("o_orderdate").dt.year())
        .agg(mkt_share=VOLUME.filter(col("nation") == "BRAZIL").sum() / VOLUME.sum())
    )


def product_profit(t: Tables) -> Object:
    return (
        t["lineitem"]
        .join(t["part"], left_on="l_partkey", right_on="p_partkey")
        .join(t["supplier"], left_on="l_suppkey", right_on="s_suppkey")
        .join(t["partsupp"], left_on=["l_suppkey", "l_partkey"], right_on=["ps_suppkey", "ps_partkey"])
        .join(t["orders"], left_on="l_orderkey", right_on="o_orderkey")
        .join(t["nation"], left_on="s_nationkey", right_on="n_nationkey")
        .filter(col("p_name").str.contains("green"))
        .group_by(nation=col("n_name"), o_year=col("o_orderdate").dt.year())
        .agg(sum_profit=(VOLUME - col("ps_supplycost") * col("l_quantity")).sum())
        .sort("nation", "o_year", descending=[False, True])
    )


def returned_items(t: Tables) -> Object:
    return (
        t["lineitem"]
        .join(t["orders"], left_on="l_orderkey", right_on="o_orderkey")
        .join(t["customer"], left_on="o_custkey", right_on="c_custkey")
        .join(t["nation"], left_on="c_nationkey", right_on="n_nationkey")
        .filter(
            col("o_orderdate") >= date(1993, 10, 1),
            col("o_orderdate") < date(1994, 1, 1),
            col("l_returnflag") == "R",
        )
        .group_by("o_custkey", "c_name", "c_acctbal", "c_phone", "n_name", "c_address", "c_comment")
        .agg(revenue=VOLUME.sum())
        .sort("revenue", "o_custkey", descending=[True, False])
        .head(20)
        .select(
            col("o_custkey").alias("c_custkey"), "c_name", "revenue", "c_acctbal", "n_name", "c_address", "c_phone",
            "c_comment",
        )
    )  # fmt: skip


def important_stock(t: Tables) -> Object:
    stock = (
        t["partsupp"]
        .join(t["supplier"], left_on="ps_suppkey", right_on="s_suppkey")
        .join(t["nation"], left_on="s_nationkey", right_on="n_nationkey")
        .filter(col("n_name") == "GERMANY")
        .group_by("ps_partkey")
        .agg(value=(col("ps_supplycost") * col("ps_availqty")).sum())
    )
    return stock.filter(col("value") > stock["value"].sum() * 0.0001).sort(
        "value", "ps_partkey", descending=[True, False]
    )


def shipping_modes(t: Tables) -> Object:
    urgent = col("o_orderpriority").isin(["1-URGENT", "2-HIGH"])
    return (
        t["lineitem"]
        .join(t["orders"], left_on="l_orderkey", right_on="o_orderkey")
        .filter(
            col("l_shipmode").isin(["MAIL", "SHIP"]),
            col("l_commitdate") < col("l_receiptdate"),
            col("l_shipdate") < col("l_commitdate"),
            col("l_receiptdate") >= date(1994, 1, 1),
            col("l_receiptdate") < date(1995, 1, 1),
        )
        .group_by("l_shipmode")
        .agg(high_line_count=urgent.count_if(), low_line_count=(~urgent).count_if())
    )


def customer_distribution(t: Tables) -> Object:
    orders = t["orders"].filter(~col("o_comment").str.like("%special%requests%")).select("o_custkey", "o_orderkey")
    return (
        t["customer"]
        .join(orders, left_on="c_custkey", right_on="o_custkey", how="left")
        .group_by("c_custkey")
        .agg(c_count=col("o_orderkey").count())
        .group_by("c_count")
        .agg(custdist=length())
        .sort("custdist", "c_count", descending=True)
    )


def promotion_effect(t: Tables) -> Object:
    return (
        t["lineitem"]
        .join(t["part"], left_on="l_partkey", right_on="p_partkey")
        .filter(col("l_shipdate") >= date(1995, 9, 1), col("l_shipdate") < date(1995, 10, 1))
        .select(
            promo_revenue=VOLUME.filter(col("p_type").str.starts_with("PROMO")).sum() * 100.0 / VOLUME.sum(),
        )
    )


def top_supplier(t: Tables) -> Object:
    revenue = (
        t["lineitem"]
        .filter(col("l_shipdate") >= date(1996, 1, 1), col("l_shipdate") < date(1996, 4, 1))
        .group_by("l_suppkey")
        .agg(total_revenue=VOLUME.sum())
    )
    return (
        t["supplier"]
        .join(revenue, left_on="s_suppkey", right_on="l_suppkey")
        .filter(col("total_revenue") == revenue["total_revenue"].max())
        .select("s_suppkey", "s_name", "s_address", "s_phone", "total_revenue")
    )


def part_suppliers(t: Tables) -> Object:
    complained = t["supplier"].filter(col("s_comment").str.like("%Customer%Complaints%"))
    return (
        t["partsupp"]
        .join(t["part"], left_on="ps_partkey", right_on="p_partkey")
        .filter(
            col("p_brand") != "Brand#45",
            ~col("p_type").str.starts_with("MEDIUM POLISHED"),
            col("p_size").isin([49, 14, 23, 45, 19, 3, 36, 9]),
            ~col("ps_suppkey").isin(complained["s_suppkey"]),
        )
        .group_by("p_brand", "p_type", "p_size")
        .agg(supplier_cnt=col("ps_suppkey").nunique())
        .sort("supplier_cnt", "p_brand", "p_type", "p_size", descending=[True, False, False, False])
    )


def small_quantity_revenue(t: Tables) -> Object:
    parts = t["part"].filter((col("p_brand") == "Brand#23") & (col("p_container") == "MED BOX"))
    return (
        t["lineitem"]
        .join(parts, left_on="l_partkey", right_on="p_partkey", how="semi")
        .filter(col("l_quantity") < col("l_quantity").mean().over("l_partkey") * 0.2)
        .select(avg_yearly=col("l_extendedprice").sum() / 7.0)
    )


def large_volume_customer(t: Tables) -> Object:
    large = t["lineitem"].group_by("l_orderkey").having(col("l_quantity").sum() > 300).agg(n=length())
    return (
        t["lineitem"]
        .join(large, "l_orderkey", how="semi")
        .join(t["orders"], left_on="l_orderkey", right_on="o_orderkey")
        .join(t["customer"], left_on="o_custkey", right_on="c_custkey")
        .group_by("c_name", "o_custkey", "l_orderkey", "o_orderdate", "o_totalprice")
        .agg(quantity=col("l_quantity").sum())
        .sort("o_totalprice", "o_orderdate", "l_orderkey", descending=[True, False, False])
        .head(100)
    )


def discounted_revenue(t: Tables) -> Object:
    def matches(brand: str, containers: list[str], low: int, size: int):
        return (
            (col("p_brand") == brand)
            & col("p_container").isin(containers)
            & col("l_quantity").between(low, low + 10)
            & col("p_size").between(1, size)
        )

    return (
        t["lineitem"]
        .join(t["part"], left_on="l_partkey", right_on="p_partkey")
        .filter(
            col("l_shipmode").isin(["AIR", "REG AIR"]),
            col("l_shipinstruct") == "DELIVER IN PERSON",
            matches("Brand#12", ["SM CASE", "SM BOX", "SM PACK", "SM PKG"], 1, 5)
            | matches("Brand#23", ["MED BAG", "MED BOX", "MED PKG", "MED PACK"], 10, 10)
            | matches("Brand#34", ["LG CASE", "LG BOX", "LG PACK", "LG PKG"], 20, 15),
        )
        .select(revenue=VOLUME.sum())
    )


def part_promotion(t: Tables) -> Object:
    parts = t["part"].filter(col("p_name").str.starts_with("forest"))
    shipped = (
        t["lineitem"]
        .filter(col("l_shipdate") >= date(1994, 1, 1), col("l_shipdate") < date(1995, 1, 1))
        .join(parts, left_on="l_partkey", right_on="p_partkey", how="semi")
        .group_by("l_partkey", "l_suppkey")
        .agg(bound=col("l_quantity").sum() * 0.5)
    )
    excess = (
        t["partsupp"]
        .join(shipped, left_on=["ps_partkey", "ps_suppkey"], right_on=["l_partkey", "l_suppkey"])
        .filter(col("ps_availqty") > col("bound"))
    )
    return (
        t["supplier"]
        .join(t["nation"], left_on="s_nationkey", right_on="n_nationkey")
        .filter(col("n_name") == "CANADA")
        .join(excess, left_on="s_suppkey", right_on="ps_suppkey", how="semi")
        .select("s_name", "s_address")
        .sort("s_name")
    )


def waiting_suppliers(t: Tables) -> Object:
    is_late = col("l_receiptdate") > col("l_commitdate")
    several = (
        t["lineitem"]
        .group_by("l_orderkey")
        .having((col("l_suppkey").nunique() > 1) & (col("l_suppkey").filter(is_late).nunique() == 1))
        .agg(n=length())
    )
    return (
        t["lineitem"]
        .filter(is_late)
        .join(t["orders"], left_on="l_orderkey", right_on="o_orderkey")
        .join(t["supplier"], left_on="l_suppkey", right_on="s_suppkey")
        .join(t["nation"], left_on="s_nationkey", right_on="n_nationkey")
        .filter(col("o_orderstatus") == "F", col("n_name") == "SAUDI ARABIA")
        .join(several, "l_orderkey", how="semi")
        .group_by("s_name")
        .agg(numwait=length())
        .sort("numwait", "s_name", descending=[True, False])
        .head(100)
    )


def sales_opportunity(t: Tables) -> Object:
    chosen = (
        t["customer"]
        .with_columns(code=col("c_phone").str.slice(0, 2))
        .filter(col("code").isin(["13", "31", "23", "29", "30", "18", "17"]))
    )
    mean = chosen.filter(col("c_acctbal") > 0)["c_acctbal"].mean()
    return (
        chosen.filter(col("c_acctbal") > mean)
        .join(t["orders"], left_on="c_custkey", right_on="o_custkey", how="anti")
        .group_by("code")
        .agg(numcust=length(), totacctbal=col("c_acctbal").sum())
    )


QUERIES: dict[int, Callable[[Tables], Object]] = dict(
    enumerate(
        (
            pricing_summary, minimum_cost_supplier, shipping_priority, order_priority, local_supplier_volume,
            revenue_change, volume_shipping, national_market_share, product_profit, returned_items, important_stock,
            shipping_modes, customer_distribution, promotion_effect, top_supplier, part_suppliers,
            small_quantity_revenue, large_volume_customer, discounted_revenue, part_promotion, waiting_suppliers,
            sales_opportunity,
        ),
        start=1,
    )
)  # fmt: skip
