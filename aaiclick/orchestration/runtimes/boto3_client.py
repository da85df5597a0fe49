"""boto3 clients (optional dependency); credentials, region and endpoint are those of the AWS tools."""

from __future__ import annotations

import asyncio
import importlib
import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import Any

from aaiclick.errors import SettingsError, UnreachableError

CONNECT_SECONDS = 3
ANSWER_SECONDS = 30
"""Longer than the longest poll of a queue."""

_REGION = re.compile(r"\bsqs\.([a-z0-9-]+)\.amazonaws\.")
_threads = ThreadPoolExecutor(4, thread_name_prefix="aaiclick-aws")


@cache
def make_client(service: str, address: str = "") -> Any:
    """Client of an AWS service, cached per address."""
    try:
        boto3, config = importlib.import_module("boto3"), importlib.import_module("botocore.config")
    except ModuleNotFoundError:
        raise SettingsError(
            "Runtimes of AWS need boto3, which is not installed.", remedy="pip install 'aaiclick[aws]'"
        ) from None
    match = _REGION.search(address)
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or (match.group(1) if match else None)
    limits = config.Config(
        connect_timeout=CONNECT_SECONDS, read_timeout=ANSWER_SECONDS, retries={"total_max_attempts": 2}
    )
    try:
        return boto3.session.Session().client(service, region_name=region, config=limits)
    except importlib.import_module("botocore.exceptions").BotoCoreError as error:
        raise SettingsError(f"AWS cannot be used: {error}", remedy="Set AWS_REGION; see docs/runtimes.md.") from None


async def call_aws(service_name: str, function: Callable[..., Any], **arguments: object) -> Any:
    """Call AWS in a thread; raises UnreachableError, with `service_name` in its message."""
    errors = importlib.import_module("botocore.exceptions")
    loop = asyncio.get_running_loop()
    try:
        return await loop.run_in_executor(_threads, partial(function, **arguments))
    except errors.ClientError as error:
        details = error.response.get("Error", {})
        raise UnreachableError(
            f"{service_name} refused: {details.get('Code', 'unknown')} {details.get('Message', '')}".strip() + ".",
            remedy="Check its name in AAICLICK_RUNTIMES, and what the credentials may do.",
        ) from None
    except errors.BotoCoreError as error:
        raise UnreachableError(f"{service_name} cannot be reached: {error}.", remedy="See docs/runtimes.md.") from None
