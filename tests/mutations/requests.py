"""Mutations of the guards of requests, analysis, decompression, addresses, poolers and the schema."""

from __future__ import annotations

from tests.mutations import Mutation

BODIES = "aaiclick/server/request_body.py"
POOL = "aaiclick/server/analysis_pool.py"
CHILD = "aaiclick/server/analysis_process.py"
PARSE = "aaiclick/catalog/queries/select_parser.py"
LINEAGE = "aaiclick/catalog/queries/column_lineage.py"
FORMATS = "aaiclick/data/io/formats.py"
FETCHING = "aaiclick/catalog/execution/http_fetch_operator.py"
SSRF = "aaiclick/data/io/ssrf.py"
POOLER = "aaiclick/store/connection_pooler_checks.py"
MIGRATE = "aaiclick/store/migrate.py"
REQUESTS = "tests/integration/server/test_request_limits.py"
SCANNER = "tests/unit/server/test_request_body.py"
ANALYSIS = "tests/integration/server/test_analysis_pool.py"
QUERY = "tests/unit/catalog/test_query_limits.py::test_a_query_past_a_limit_is_refused"
SCHEMAS = "aaiclick/orchestration/json_schema_validation.py"
VALIDATION = "tests/unit/orchestration/test_json_schema_validation.py"
LOOP = "tests/integration/server/test_event_loop.py"
DOWNLOADS = "tests/integration/data/test_files.py"

READ_FIRST = """\
            message = await receive()

            async def receive_again():
                return message

            body._receive = receive_again
            await self._app(scope, body.receive, response_sender)
"""

REQUEST_MUTATIONS = (
    # Requests
    Mutation(
        "bodies: authentication comes first", "aaiclick/server/middleware.py",
        "            await self._app(scope, body.receive, response_sender)\n", READ_FIRST,
        (f"{REQUESTS}::test_unauthorised_request_is_refused_before_its_body_is_read",),
    ),
    Mutation(
        "bodies: the depth", BODIES, "if max(depths) > MAX_DEPTH:", "if False:",
        (f"{SCANNER}::test_scanner_refuses_excess_in_chunks_of_any_size",),
    ),
    Mutation(
        "bodies: closing brackets without opening ones", BODIES, "if min(depths) < 0:", "if False:",
        (f"{SCANNER}::test_scanner_stops_at_the_first_excess",),
    ),
    Mutation(
        "bodies: the number of values", BODIES, "if self._values > self._max_values:", "if False:",
        (f"{SCANNER}::test_scanner_refuses_excess_in_chunks_of_any_size",),
    ),
    Mutation(
        "bodies: the memory of unfinished ones", BODIES,
        "self._budget.reserve(self._client, len(chunk), anonymous=self._anonymous)", "pass",
        (f"{REQUESTS}::test_unfinished_bodies_of_one_credential_are_bounded",),
    ),
    Mutation(
        "bodies: memory for clients with credentials", BODIES,
        " or (anonymous and self._anonymous + count > self._anonymous_limit)", "",
        (f"{SCANNER}::test_budget_keeps_memory_for_clients_with_credentials",),
    ),
    Mutation(
        "bodies: the size without a credential", BODIES, "if self._anonymous or is_form:", "if is_form:",
        (f"{REQUESTS}::test_anonymous_bodies_have_a_small_limit",),
    ),
    Mutation(
        "bodies: the time limit", BODIES, "max(deadline - time.monotonic(), 0)", "None",
        (f"{REQUESTS}::test_slow_body_gets_408",),
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
        ("tests/unit/catalog/test_query_limits.py::test_query_with_too_many_steps_is_refused",),
    ),
    Mutation(
        "analysis: the processor time of the child process", CHILD,
        "signal.setitimer(signal.ITIMER_PROF, cpu_seconds)", "signal.setitimer(signal.ITIMER_PROF, 0)",
        (f"{ANALYSIS}::test_endless_call_is_killed_and_the_next_one_succeeds",),
    ),
    Mutation(
        "analysis: the memory of the child process", CHILD,
        "resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))", "pass",
        (f"{ANALYSIS}::test_call_over_the_memory_limit_fails",),
    ),
    Mutation(
        "analysis: the number of calls of a client", POOL, "if self._waiting[client] >= MAX_CLIENT_WAITING:",
        "if False:",
        (f"{ANALYSIS}::test_calls_per_client_are_limited",),
    ),
    Mutation(
        "analysis: one process for each client", POOL, "async with lock, self._free_slots:",
        "async with self._free_slots:",
        (f"{ANALYSIS}::test_one_client_cannot_use_all_processes",),
    ),
    Mutation(
        "analysis: in a child process", "aaiclick/catalog/sql_yaml_analysis.py", "if pool is None:", "if True:",
        (f"{ANALYSIS}::test_results_and_errors_come_from_another_process",),
    ),
    # Schemas and forms of workers, messages of assistants
    Mutation(
        "schemas: the steps of a validation", SCHEMAS, "if self._steps > self._max_steps:", "if self._steps > 10**8:",
        (f"{VALIDATION}::test_validation_with_too_many_steps_is_refused",),
    ),
    Mutation(
        "schemas: long validations in a thread", "aaiclick/orchestration/function_registry.py", "LOOP_STEPS = 2_000",
        "LOOP_STEPS = 500_000", (f"{LOOP}::test_stored_schema_does_not_block_the_loop",),
    ),
    Mutation(
        "schemas: texts of mistakes that are not shown", SCHEMAS,
        "            yield partial(_expected, path, schema, value)\n            return",
        "            yield lambda text=_expected(path, schema, value): text\n            return",
        (f"{LOOP}::test_stored_schema_does_not_block_the_loop",),
    ),
    Mutation(
        "schemas: limits at registration", "aaiclick/api/worker_protocol/workers.py", "parameters: ParameterSchema",
        "parameters: dict[str, Any]", (f"{LOOP}::test_large_or_malformed_schema_is_not_registered",),
    ),
    Mutation(
        "forms: limits", "aaiclick/api/approval_forms.py",
        "        check_form(form or {})\n        model", "        model",
        (f"{LOOP}::test_stored_form_does_not_block_the_loop",),
    ),
    Mutation(
        "forms: patterns in another process", "aaiclick/operations/approvals.py",
        "if form_text is None or '\"pattern\"' not in form_text:", "if True:",
        (f"{LOOP}::test_stored_form_does_not_block_the_loop",),
    ),
    Mutation(
        "messages: size and values", BODIES, "is_message = self._scope[\"path\"] == MESSAGE_PATH", "is_message = False",
        (f"{LOOP}::test_message_of_an_assistant_does_not_block_the_loop",),
    ),
    Mutation(
        "messages: JSON in arguments", "aaiclick/server/mcp.py", "len(value) > MAX_ARGUMENT and", "False and",
        (f"{LOOP}::test_message_of_an_assistant_does_not_block_the_loop",),
    ),
    # Decompression, addresses
    Mutation(
        "decompression: the expansion", FORMATS, "if self._written > EXPANSION_FREE_BYTES and", "if False and",
        ("tests/unit/data/test_formats.py::test_decompression_bomb_is_rejected",),
    ),
    Mutation(
        "decompression: the size of a step", FORMATS, "decompress(piece, MAX_STEP_BYTES)", "decompress(piece, 1 << 30)",
        ("tests/unit/data/test_formats.py::test_decompression_output_is_bounded",),
    ),
    Mutation(
        "decompression: the rows of Parquet", FETCHING, "decoded += batch.nbytes", "decoded += 0",
        ("tests/unit/catalog/test_http_fetch.py::test_parquet_expansion_is_limited",),
    ),
    Mutation(
        "decompression: the declared size of Parquet", FETCHING, "if max(size, decoded) > DECODED_BYTES:",
        "if decoded > DECODED_BYTES:",
        ("tests/unit/catalog/test_http_fetch.py::test_declared_parquet_size_over_limit_is_refused",),
    ),
    Mutation(
        "addresses: S3 without an endpoint", "aaiclick/data/io/s3_client.py",
        "allow_private or bool(access.endpoint)", "True",
        ("tests/integration/data/test_s3.py::test_private_address_requires_an_explicit_endpoint",),
    ),
    Mutation(
        "addresses: the endpoint of S3 is a URL", "aaiclick/data/io/s3_client.py",
        "            check_url(self.endpoint, allow_private=True)\n", "            pass\n",
        ("tests/unit/data/test_s3.py",),
    ),
    Mutation(
        "addresses: private ones written out", SSRF, "if not allow_private and _looks_like_address(parts.raw_host):",
        "if False:", (f"{DOWNLOADS}::test_private_addresses_are_refused",),
    ),
    Mutation(
        "addresses: what a name resolves to", SSRF, "            check_address(str(sockaddr[0]), host)\n",
        "            pass\n", (f"{DOWNLOADS}::test_private_addresses_are_refused",),
    ),
    Mutation(
        "addresses: redirects", SSRF, "        check_url(url, allow_private)\n        response =",
        "        if _ == 0:\n            check_url(url, allow_private)\n        response =",
        (f"{DOWNLOADS}::test_a_redirect_into_the_private_network_is_refused",),
    ),
    # Servers and schema
    Mutation(
        "pooler: modes that share sessions", POOLER, "if len(own_pids) > 1 or probe_pid in own_pids:", "if False:",
        ("tests/integration/store/test_connection_pooler_checks.py::test_transaction_mode_is_found_without_named_statements",),
    ),
    Mutation(
        "pooler: settings after the reset of a session", POOLER, "connection.settings_statements = guards", "pass",
        ("tests/integration/store/test_connection_pooler_checks.py::test_session_mode_has_all_session_settings",),
    ),
    Mutation(
        "schema: tables of an earlier build", MIGRATE, "        check_digest(endpoint, comment)\n", "        pass\n",
        ("tests/integration/store/test_migrations.py::test_tables_of_an_earlier_build_are_refused",),
    ),
    Mutation(
        "schema: a downgrade asks first", MIGRATE, 'if arguments.command == "downgrade" and not arguments.yes:',
        "if False:", ("tests/e2e/test_cli_errors.py::test_foreign_databases_and_downgrades_require_confirmation",),
    ),
)  # fmt: skip
