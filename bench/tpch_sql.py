"""The 22 TPC-H queries in hand-written ClickHouse SQL, with the validation parameters of the specification."""

from __future__ import annotations

QUERIES: dict[int, str] = {
    1: """
SELECT l_returnflag, l_linestatus, sum(l_quantity) AS sum_qty, sum(l_extendedprice) AS sum_base_price,
  sum(l_extendedprice * (1 - l_discount)) AS sum_disc_price,
  sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) AS sum_charge, avg(l_quantity) AS avg_qty,
  avg(l_extendedprice) AS avg_price, avg(l_discount) AS avg_disc, count() AS count_order
FROM lineitem WHERE l_shipdate <= toDate32('1998-09-02')
GROUP BY l_returnflag, l_linestatus ORDER BY l_returnflag, l_linestatus
""",
    2: """
WITH offers AS (
  SELECT ps_partkey, ps_supplycost, s_acctbal, s_name, n_name, s_address, s_phone, s_comment
  FROM partsupp JOIN supplier ON s_suppkey = ps_suppkey JOIN nation ON s_nationkey = n_nationkey
  JOIN region ON n_regionkey = r_regionkey WHERE r_name = 'EUROPE'
)
SELECT s_acctbal, s_name, n_name, p_partkey, p_mfgr, s_address, s_phone, s_comment
FROM offers JOIN part ON p_partkey = ps_partkey
JOIN (SELECT ps_partkey AS part, min(ps_supplycost) AS lowest FROM offers GROUP BY ps_partkey) AS cheapest
  ON part = p_partkey AND ps_supplycost = lowest
WHERE p_size = 15 AND p_type LIKE '%BRASS'
ORDER BY s_acctbal DESC, n_name, s_name, p_partkey LIMIT 100
""",
    3: """
SELECT l_orderkey, sum(l_extendedprice * (1 - l_discount)) AS revenue, o_orderdate, o_shippriority
FROM lineitem JOIN orders ON l_orderkey = o_orderkey JOIN customer ON c_custkey = o_custkey
WHERE c_mktsegment = 'BUILDING' AND o_orderdate < toDate32('1995-03-15') AND l_shipdate > toDate32('1995-03-15')
GROUP BY l_orderkey, o_orderdate, o_shippriority ORDER BY revenue DESC, o_orderdate, l_orderkey LIMIT 10
""",
    4: """
SELECT o_orderpriority, count() AS order_count FROM orders
WHERE o_orderdate >= toDate32('1993-07-01') AND o_orderdate < toDate32('1993-10-01')
  AND o_orderkey IN (SELECT l_orderkey FROM lineitem WHERE l_commitdate < l_receiptdate)
GROUP BY o_orderpriority ORDER BY o_orderpriority
""",
    5: """
SELECT n_name, sum(l_extendedprice * (1 - l_discount)) AS revenue
FROM lineitem JOIN (
  SELECT o_orderkey, c_nationkey FROM orders JOIN customer ON c_custkey = o_custkey
  WHERE o_orderdate >= toDate32('1994-01-01') AND o_orderdate < toDate32('1995-01-01')
) AS bought ON l_orderkey = o_orderkey
JOIN (
  SELECT s_suppkey, s_nationkey, n_name FROM supplier JOIN nation ON s_nationkey = n_nationkey
  JOIN region ON n_regionkey = r_regionkey WHERE r_name = 'ASIA'
) AS sold ON l_suppkey = s_suppkey AND c_nationkey = s_nationkey
GROUP BY n_name ORDER BY revenue DESC
""",
    6: """
SELECT sum(l_extendedprice * l_discount) AS revenue FROM lineitem
WHERE l_shipdate >= toDate32('1994-01-01') AND l_shipdate < toDate32('1995-01-01')
  AND l_discount BETWEEN toDecimal64('0.05', 2) AND toDecimal64('0.07', 2) AND l_quantity < 24
""",
    7: """
SELECT supp_nation, cust_nation, l_year, sum(volume) AS revenue FROM (
  SELECT n1.n_name AS supp_nation, n2.n_name AS cust_nation, toYear(l_shipdate) AS l_year,
    l_extendedprice * (1 - l_discount) AS volume
  FROM lineitem JOIN orders ON o_orderkey = l_orderkey JOIN customer ON c_custkey = o_custkey
  JOIN supplier ON s_suppkey = l_suppkey JOIN nation AS n1 ON s_nationkey = n1.n_nationkey
  JOIN nation AS n2 ON c_nationkey = n2.n_nationkey
  WHERE ((n1.n_name = 'FRANCE' AND n2.n_name = 'GERMANY') OR (n1.n_name = 'GERMANY' AND n2.n_name = 'FRANCE'))
    AND l_shipdate BETWEEN toDate32('1995-01-01') AND toDate32('1996-12-31')
) GROUP BY supp_nation, cust_nation, l_year ORDER BY supp_nation, cust_nation, l_year
""",
    8: """
SELECT o_year, toFloat64(sumIf(volume, nation = 'BRAZIL')) / toFloat64(sum(volume)) AS mkt_share FROM (
  SELECT toYear(o_orderdate) AS o_year, l_extendedprice * (1 - l_discount) AS volume, n2.n_name AS nation
  FROM lineitem JOIN part ON p_partkey = l_partkey JOIN orders ON l_orderkey = o_orderkey
  JOIN customer ON o_custkey = c_custkey JOIN nation AS n1 ON c_nationkey = n1.n_nationkey
  JOIN region ON n1.n_regionkey = r_regionkey JOIN supplier ON s_suppkey = l_suppkey
  JOIN nation AS n2 ON s_nationkey = n2.n_nationkey
  WHERE r_name = 'AMERICA' AND o_orderdate BETWEEN toDate32('1995-01-01') AND toDate32('1996-12-31')
    AND p_type = 'ECONOMY ANODIZED STEEL'
) GROUP BY o_year ORDER BY o_year
""",
    9: """
SELECT nation, o_year, sum(amount) AS sum_profit FROM (
  SELECT n_name AS nation, toYear(o_orderdate) AS o_year,
    l_extendedprice * (1 - l_discount) - ps_supplycost * l_quantity AS amount
  FROM lineitem JOIN part ON p_partkey = l_partkey JOIN supplier ON s_suppkey = l_suppkey
  JOIN partsupp ON ps_suppkey = l_suppkey AND ps_partkey = l_partkey JOIN orders ON o_orderkey = l_orderkey
  JOIN nation ON s_nationkey = n_nationkey WHERE p_name LIKE '%green%'
) GROUP BY nation, o_year ORDER BY nation, o_year DESC
""",
    10: """
SELECT c_custkey, c_name, sum(l_extendedprice * (1 - l_discount)) AS revenue, c_acctbal, n_name, c_address, c_phone,
  c_comment
FROM lineitem JOIN orders ON l_orderkey = o_orderkey JOIN customer ON c_custkey = o_custkey
JOIN nation ON c_nationkey = n_nationkey
WHERE o_orderdate >= toDate32('1993-10-01') AND o_orderdate < toDate32('1994-01-01') AND l_returnflag = 'R'
GROUP BY c_custkey, c_name, c_acctbal, c_phone, n_name, c_address, c_comment
ORDER BY revenue DESC, c_custkey LIMIT 20
""",
    11: """
WITH stock AS (
  SELECT ps_partkey, sum(ps_supplycost * ps_availqty) AS value
  FROM partsupp JOIN supplier ON ps_suppkey = s_suppkey JOIN nation ON s_nationkey = n_nationkey
  WHERE n_name = 'GERMANY' GROUP BY ps_partkey
)
SELECT ps_partkey, value FROM stock
WHERE toFloat64(value) > (SELECT toFloat64(sum(value)) * 0.0001 FROM stock) ORDER BY value DESC, ps_partkey
""",
    12: """
SELECT l_shipmode, countIf(o_orderpriority IN ('1-URGENT', '2-HIGH')) AS high_line_count,
  countIf(o_orderpriority NOT IN ('1-URGENT', '2-HIGH')) AS low_line_count
FROM lineitem JOIN orders ON o_orderkey = l_orderkey
WHERE l_shipmode IN ('MAIL', 'SHIP') AND l_commitdate < l_receiptdate AND l_shipdate < l_commitdate
  AND l_receiptdate >= toDate32('1994-01-01') AND l_receiptdate < toDate32('1995-01-01')
GROUP BY l_shipmode ORDER BY l_shipmode
""",
    13: """
SELECT c_count, count() AS custdist FROM (
  SELECT c_custkey, countIf(o_orderkey != 0) AS c_count FROM customer
  LEFT JOIN (SELECT o_custkey, o_orderkey FROM orders WHERE o_comment NOT LIKE '%special%requests%') AS o
    ON c_custkey = o_custkey
  GROUP BY c_custkey
) GROUP BY c_count ORDER BY custdist DESC, c_count DESC
""",
    14: """
SELECT 100.0 * sumIf(l_extendedprice * (1 - l_discount), p_type LIKE 'PROMO%')
  / sum(l_extendedprice * (1 - l_discount)) AS promo_revenue
FROM lineitem JOIN part ON l_partkey = p_partkey
WHERE l_shipdate >= toDate32('1995-09-01') AND l_shipdate < toDate32('1995-10-01')
""",
    15: """
WITH revenue AS (
  SELECT l_suppkey AS supplier_no, sum(l_extendedprice * (1 - l_discount)) AS total_revenue FROM lineitem
  WHERE l_shipdate >= toDate32('1996-01-01') AND l_shipdate < toDate32('1996-04-01') GROUP BY l_suppkey
)
SELECT s_suppkey, s_name, s_address, s_phone, total_revenue FROM supplier JOIN revenue ON s_suppkey = supplier_no
WHERE total_revenue = (SELECT max(total_revenue) FROM revenue) ORDER BY s_suppkey
""",
    16: """
SELECT p_brand, p_type, p_size, uniqExact(ps_suppkey) AS supplier_cnt
FROM partsupp JOIN part ON p_partkey = ps_partkey
WHERE p_brand != 'Brand#45' AND p_type NOT LIKE 'MEDIUM POLISHED%' AND p_size IN (49, 14, 23, 45, 19, 3, 36, 9)
  AND ps_suppkey NOT IN (SELECT s_suppkey FROM supplier WHERE s_comment LIKE '%Customer%Complaints%')
GROUP BY p_brand, p_type, p_size ORDER BY supplier_cnt DESC, p_brand, p_type, p_size
""",
    17: """
WITH chosen AS (
  SELECT l_partkey, l_quantity, l_extendedprice FROM lineitem
  WHERE l_partkey IN (SELECT p_partkey FROM part WHERE p_brand = 'Brand#23' AND p_container = 'MED BOX')
)
SELECT sum(l_extendedprice) / 7.0 AS avg_yearly FROM chosen
JOIN (SELECT l_partkey AS part, 0.2 * avg(l_quantity) AS bound FROM chosen GROUP BY l_partkey) AS bounds
  ON part = l_partkey
WHERE l_quantity < bound
""",
    18: """
SELECT c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice, sum(l_quantity) AS quantity
FROM lineitem JOIN orders ON o_orderkey = l_orderkey JOIN customer ON c_custkey = o_custkey
WHERE o_orderkey IN (SELECT l_orderkey FROM lineitem GROUP BY l_orderkey HAVING sum(l_quantity) > 300)
GROUP BY c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice
ORDER BY o_totalprice DESC, o_orderdate, o_orderkey LIMIT 100
""",
    19: """
SELECT sum(l_extendedprice * (1 - l_discount)) AS revenue FROM lineitem JOIN part ON p_partkey = l_partkey
WHERE l_shipmode IN ('AIR', 'REG AIR') AND l_shipinstruct = 'DELIVER IN PERSON' AND (
  (p_brand = 'Brand#12' AND p_container IN ('SM CASE', 'SM BOX', 'SM PACK', 'SM PKG') AND l_quantity BETWEEN 1 AND 11
    AND p_size BETWEEN 1 AND 5)
  OR (p_brand = 'Brand#23' AND p_container IN ('MED BAG', 'MED BOX', 'MED PKG', 'MED PACK')
    AND l_quantity BETWEEN 10 AND 20 AND p_size BETWEEN 1 AND 10)
  OR (p_brand = 'Brand#34' AND p_container IN ('LG CASE', 'LG BOX', 'LG PACK', 'LG PKG')
    AND l_quantity BETWEEN 20 AND 30 AND p_size BETWEEN 1 AND 15))
""",
    20: """
WITH shipped AS (
  SELECT l_partkey, l_suppkey, 0.5 * toFloat64(sum(l_quantity)) AS bound FROM lineitem
  WHERE l_shipdate >= toDate32('1994-01-01') AND l_shipdate < toDate32('1995-01-01')
    AND l_partkey IN (SELECT p_partkey FROM part WHERE p_name LIKE 'forest%')
  GROUP BY l_partkey, l_suppkey
)
SELECT s_name, s_address FROM supplier JOIN nation ON s_nationkey = n_nationkey
WHERE n_name = 'CANADA' AND s_suppkey IN (
  SELECT ps_suppkey FROM partsupp JOIN shipped ON l_partkey = ps_partkey AND l_suppkey = ps_suppkey
  WHERE ps_availqty > bound)
ORDER BY s_name
""",
    21: """
WITH several AS (
  SELECT l_orderkey FROM lineitem GROUP BY l_orderkey
  HAVING uniqExact(l_suppkey) > 1 AND uniqExactIf(l_suppkey, l_receiptdate > l_commitdate) = 1
)
SELECT s_name, count() AS numwait FROM lineitem JOIN orders ON o_orderkey = l_orderkey
JOIN supplier ON s_suppkey = l_suppkey JOIN nation ON s_nationkey = n_nationkey
WHERE o_orderstatus = 'F' AND l_receiptdate > l_commitdate AND n_name = 'SAUDI ARABIA'
  AND l_orderkey IN (SELECT l_orderkey FROM several)
GROUP BY s_name ORDER BY numwait DESC, s_name LIMIT 100
""",
    22: """
WITH chosen AS (
  SELECT c_custkey, c_acctbal, substring(c_phone, 1, 2) AS code FROM customer
  WHERE code IN ('13', '31', '23', '29', '30', '18', '17')
)
SELECT code, count() AS numcust, sum(c_acctbal) AS totacctbal FROM chosen
WHERE c_acctbal > (SELECT avg(c_acctbal) FROM chosen WHERE c_acctbal > 0)
  AND c_custkey NOT IN (SELECT o_custkey FROM orders)
GROUP BY code ORDER BY code
""",
}
