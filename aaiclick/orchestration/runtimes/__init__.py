"""External runtimes: SQS queues that announce ready tasks, and Lambda functions that run one task per invocation.

A message may arrive twice, late or never: only the claim in PostgreSQL assigns a task to an attempt. docs/runtimes.md
describes the setup.

- `sqs_queue`: SQS queue of task ids
- `lambda_invoke`: invokes a Lambda function with one claimed task
- `boto3_client`: boto3 clients (optional dependency)

Next: aaiclick.orchestration.worker.sqs_wakeup and aaiclick.orchestration.worker.lambda_handler.
"""
