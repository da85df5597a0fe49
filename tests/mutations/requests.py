"""Mutations of the guards of requests, analysis, decompression, addresses, poolers and the schema."""

from __future__ import annotations

from tests.mutations import Mutation

BODIES = "aaiclick/server/bodies.py"
POOL = "aaiclick/server/analysis_pool.py"
CHILD = "aaiclick/server/analysis_process.py"
PARSE = "aaiclick/catalog/queries/parse.py"
LINEAGE = "aaiclick/catalog/queries/lineage.py"
FORMATS = "aaiclick/data/formats.py"
FETCHING = "aaiclick/catalog/running/fetching.py"
SSRF = "aaiclick/data/guard.py"
POOLER = "aaiclick/store/pooler.py"
MIGRATE = "aaiclick/store/migrate.py"
REQUESTS = "tests/integration/server/test_request_limits.py"
SCANNER = "tests/unit/server/test_bodies.py"
ANALYSIS = "tests/integration/server/test_analysis_pool.py"
QUERY = "tests/unit/catalog/test_query_limits.py::test_a_query_past_a_limit_is_refused"
DOWNLOADS = "tests/integration/data/test_files.py"

READ_FIRST = """\
            message = await receive()

            async def receive_again():
                return message

            body._receive = receive_again
            await self._app(scope, body.receive, told)
"""

REQUEST_MUTATIONS = (
    # Requests
    Mutation(
        "bodies: authentication comes first", "aaiclick/server/gate.py",
        "            await self._app(scope, body.receive, told)\n", READ_FIRST,
        (f"{REQUESTS}::test_a_request_is_refused_before_its_body_is_read",),
    ),
    Mutation(
        "bodies: the depth", BODIES, "if max(depths) > MAX_DEPTH:", "if False:",
        (f"{SCANNER}::test_scanner_refuses_excess_in_chunks_of_any_size",),
    ),
    Mutation(
        "bodies: closing brackets without opening ones", BODIES, "if min(depths) < 0:", "if False:",
        (f"{SCANNER}::test_scanner_ends_at_the_first_excess",),
    ),
    Mutation(
        "bodies: the number of values", BODIES, "if self._values > MAX_VALUES:", "if False:",
        (f"{SCANNER}::test_scanner_refuses_excess_in_chunks_of_any_size",),
    ),
    Mutation(
        "bodies: the memory of unfinished ones", BODIES,
        "self._budget.take(self._client, len(chunk), anonymous=self._anonymous)", "pass",
        (f"{REQUESTS}::test_unfinished_bodies_of_one_credential_are_bounded",),
    ),
    Mutation(
        "bodies: memory for clients with credentials", BODIES,
        " or (anonymous and self._anonymous + count > self._anonymous_limit)", "",
        (f"{SCANNER}::test_budget_keeps_memory_for_clients_with_credentials",),
    ),
    Mutation(
        "bodies: the size without a credential", BODIES, "if self._anonymous or is_form:", "if is_form:",
        (f"{REQUESTS}::test_bodies_without_a_credential_are_small",),
    ),
    Mutation(
        "bodies: the time limit", BODIES, "max(deadline - time.monotonic(), 0)", "None",
        (f"{REQUESTS}::test_a_slow_body_is_answered_408",),
    ),
    # Analysis of SQL and YAML
    Mutation(
        "analysis: the number of words", PARSE, "if len(tokens) > MAX_TOKENS:", "if False:", (f"{QUERY}[words]",),
    ),
    Mutation(
        "analysis: the depth of brackets", PARSE, "len(open_levels) > MAX_DEPTH or open_levels", "open_levels",
        (f"{QUERY}[brackets]",),
    ),
    Mutation(
        "analysis: nested lambdas", PARSE, " or open_levels[-1] > MAX_BACKTRACKS", "", (f"{QUERY}[lambdas]",),
    ),
    Mutation(
        "analysis: the depth of the tree", PARSE, "if depth > MAX_TREE_DEPTH:", "if False:", (f"{QUERY}[operators]",),
    ),
    Mutation("analysis: the number of relations", PARSE, "if relations > MAX_RELATIONS:", "if False:",
             (f"{QUERY}[joins]",)),
    Mutation(
        "analysis: the number of columns", LINEAGE, "if len(columns) >= MAX_COLUMNS:", "if False:",
        (f"{QUERY}[stars]",),
    ),
    Mutation(
        "analysis: the number of steps", LINEAGE, "if self._steps > MAX_STEPS:", "if False:",
        ("tests/unit/catalog/test_query_limits.py::test_a_query_of_too_many_steps_is_refused",),
    ),
    Mutation(
        "analysis: the processor time of the child process", CHILD,
        "signal.setitimer(signal.ITIMER_PROF, cpu_seconds)", "signal.setitimer(signal.ITIMER_PROF, 0)",
        (f"{ANALYSIS}::test_a_call_without_end_is_ended_and_the_next_one_works",),
    ),
    Mutation(
        "analysis: the memory of the child process", CHILD,
        "resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))", "pass",
        (f"{ANALYSIS}::test_a_call_that_takes_too_much_memory_is_ended",),
    ),
    Mutation(
        "analysis: the number of calls of a client", POOL, "if self._waiting[client] >= CLIENT_WAITING:", "if False:",
        (f"{ANALYSIS}::test_a_client_has_a_limited_number_of_calls",),
    ),
    Mutation(
        "analysis: one process for each client", POOL, "async with lock, self._free:", "async with self._free:",
        (f"{ANALYSIS}::test_one_client_does_not_take_all_processes",),
    ),
    Mutation(
        "analysis: in a child process", "aaiclick/catalog/analysis.py", "if pool is None:", "if True:",
        (f"{ANALYSIS}::test_results_and_errors_come_from_another_process",),
    ),
    # Decompression, addresses
    Mutation(
        "decompression: the expansion", FORMATS, "if self._written > UNSUSPECTED_BYTES and", "if False and",
        ("tests/unit/data/test_formats.py::test_a_bomb_is_refused",),
    ),
    Mutation(
        "decompression: the size of a step", FORMATS, "decompress(piece, PLAIN_BYTES)", "decompress(piece, 1 << 30)",
        ("tests/unit/data/test_formats.py::test_a_small_piece_is_never_a_large_one_at_once",),
    ),
    Mutation(
        "decompression: the rows of Parquet", FETCHING, "decoded += batch.nbytes", "decoded += 0",
        ("tests/unit/catalog/test_fetching.py::test_a_few_kilobytes_do_not_become_gigabytes",),
    ),
    Mutation(
        "decompression: the declared size of Parquet", FETCHING, "if max(size, decoded) > DECODED_BYTES:",
        "if decoded > DECODED_BYTES:",
        ("tests/unit/catalog/test_fetching.py::test_a_declared_size_is_believed_when_it_is_too_large",),
    ),
    Mutation(
        "addresses: S3 without an endpoint", "aaiclick/data/s3.py", "allow_private or bool(access.endpoint)", "True",
        ("tests/integration/data/test_s3.py::test_a_private_address_needs_an_endpoint_of_ones_own",),
    ),
    Mutation(
        "addresses: the endpoint of S3 is a URL", "aaiclick/data/s3.py",
        "            check_url(self.endpoint, allow_private=True)\n", "            pass\n",
        ("tests/unit/data/test_s3.py",),
    ),
    Mutation(
        "addresses: private ones written out", SSRF, "if not allow_private and _looks_like_address(parts.raw_host):",
        "if False:", (f"{DOWNLOADS}::test_private_addresses_are_refused",),
    ),
    Mutation(
        "addresses: what a name resolves to", SSRF, "            check_address(str(place[0]), host)\n",
        "            pass\n", (f"{DOWNLOADS}::test_private_addresses_are_refused",),
    ),
    Mutation(
        "addresses: redirects", SSRF, "        check_url(url, allow_private)\n        response =",
        "        if _ == 0:\n            check_url(url, allow_private)\n        response =",
        (f"{DOWNLOADS}::test_a_redirect_into_the_private_network_is_refused",),
    ),
    # Servers and schema
    Mutation(
        "pooler: modes that share sessions", POOLER, "if len(ours) > 1 or theirs in ours:", "if False:",
        ("tests/integration/store/test_pooler.py::test_transaction_mode_is_found_without_named_statements",),
    ),
    Mutation(
        "pooler: settings after the reset of a session", POOLER, "connection.guards = guards", "pass",
        ("tests/integration/store/test_pooler.py::test_session_mode_has_all_session_settings",),
    ),
    Mutation(
        "schema: tables of an earlier build", MIGRATE, "        check_digest(target, comment)\n", "        pass\n",
        ("tests/integration/store/test_migrations.py::test_tables_of_an_earlier_build_are_refused",),
    ),
    Mutation(
        "schema: a downgrade asks first", MIGRATE, 'if arguments.command == "downgrade" and not arguments.yes:',
        "if False:", ("tests/e2e/test_cli_errors.py::test_a_downgrade_is_confirmed_at_a_terminal_or_by_an_option",),
    ),
)  # fmt: skip
