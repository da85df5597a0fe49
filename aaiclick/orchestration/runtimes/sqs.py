"""A queue of SQS that carries the ids of tasks, and nothing else about them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from aaiclick.errors import UnreachableError
from aaiclick.orchestration.runtimes.aws import call, client

AT_ONCE = 10
"""What one request to SQS carries."""

WAIT_SECONDS = 20
"""The longest poll that SQS offers."""


class TaskQueue:
    """One queue, known by its URL."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._client: Any = client("sqs", url)

    async def send(self, task_ids: Sequence[int]) -> None:
        """A message for each task; raises UnreachableError if some could not be sent."""
        for start in range(0, len(task_ids), AT_ONCE):
            entries = [
                {"Id": str(task_id), "MessageBody": json.dumps({"task_id": str(task_id)})}
                for task_id in task_ids[start : start + AT_ONCE]
            ]
            answer = await self._call(self._client.send_message_batch, Entries=entries)
            for failed in answer.get("Failed", ()):
                raise UnreachableError(f"The queue {self.url} refused a message: {failed.get('Code')}.")

    async def receive(self, most: int, wait_seconds: int = WAIT_SECONDS) -> list[str]:
        """Up to `most` messages, by what they are deleted by; waits for the first."""
        answer = await self._call(
            self._client.receive_message, MaxNumberOfMessages=min(most, AT_ONCE), WaitTimeSeconds=wait_seconds
        )
        return [message["ReceiptHandle"] for message in answer.get("Messages", ())]

    async def delete(self, receipts: Sequence[str]) -> None:
        """They have done their work. One that stays comes again, and finds nothing to claim."""
        for start in range(0, len(receipts), AT_ONCE):
            entries = [
                {"Id": str(nth), "ReceiptHandle": receipt}
                for nth, receipt in enumerate(receipts[start : start + AT_ONCE])
            ]
            await self._call(self._client.delete_message_batch, Entries=entries)

    async def _call(self, function: Any, **arguments: Any) -> Any:
        return await call(f"The queue {self.url}", function, QueueUrl=self.url, **arguments)
