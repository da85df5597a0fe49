"""Expressions over columns: nodes, functions, operators, and the parser of View conditions.

- `column`: column expressions such as `col("x") + 1`
- `constructors`: functions that return expressions: `col`, `lit`, `case`, …
- `selectors`: expressions over several columns
- `operators`: operators and methods of expressions and of columns of Objects
- `aggregate_methods`: aggregates of these
- `window_methods`: window functions of these
- `expression_base`: how a function is applied to an expression or a column
- `intervals`: intervals of time such as `15m`
- `python_source`: expressions as they are written
- `method_namespaces`: functions grouped by type: `.str`, `.dt`, `.list`, `.map`, `.struct`, `.json`
- `where_parser`: parser and formatter of View conditions
- `literals`: types of Python values, and their encoding as query parameters
- `functions`: functions with their types and their SQL
- `nodes`: expression nodes: immutable trees with a type

Next: aaiclick.data.compile.
"""
