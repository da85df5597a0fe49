"""SQS queue of task ids."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from aaiclick.errors import UnreachableError
from aaiclick.orchestration.runtimes.boto3_client import call_aws, make_client

BATCH_SIZE = 10
"""Messages per request to SQS."""

WAIT_SECONDS = 20
"""Longest poll that SQS allows."""


class SqsTaskQueue:
    """SQS queue with messages that contain task ids."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._client: Any = make_client("sqs", url)

    async def send(self, task_ids: Sequence[int]) -> None:
        """Send a message for each task; raises UnreachableError if some could not be sent."""
        for start in range(0, len(task_ids), BATCH_SIZE):
            entries = [
                {"Id": str(task_id), "MessageBody": json.dumps({"task_id": str(task_id)})}
                for task_id in task_ids[start : start + BATCH_SIZE]
            ]
            answer = await self._call(self._client.send_message_batch, Entries=entries)
            for failed in answer.get("Failed", ()):
                raise UnreachableError(f"The queue {self.url} refused a message: {failed.get('Code')}.")

    async def receive(self, limit: int, wait_seconds: int = WAIT_SECONDS) -> list[str]:
        """Wait for messages; returns the receipt handles of up to `limit` of them."""
        answer = await self._call(
            self._client.receive_message, MaxNumberOfMessages=min(limit, BATCH_SIZE), WaitTimeSeconds=wait_seconds
        )
        return [message["ReceiptHandle"] for message in answer.get("Messages", ())]

    async def delete(self, receipts: Sequence[str]) -> None:
        """Delete messages. One that is not deleted is delivered again, which is harmless."""
        for start in range(0, len(receipts), BATCH_SIZE):
            entries = [
                {"Id": str(index), "ReceiptHandle": receipt}
                for index, receipt in enumerate(receipts[start : start + BATCH_SIZE])
            ]
            await self._call(self._client.delete_message_batch, Entries=entries)

    async def _call(self, function: Any, **arguments: Any) -> Any:
        return await call_aws(f"The queue {self.url}", function, QueueUrl=self.url, **arguments)
