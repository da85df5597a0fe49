"""SQS and Lambda by moto, with a proxy that records invocations."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import boto3
import pytest
import requests

from aaiclick.orchestration.runtimes import boto3_client
from aaiclick.settings import get_settings
from tests.integration.catalog.conftest import shop as shop
from tests.integration.moto_server import VARIABLES
from tests.integration.worker.conftest import worker_env as worker_env

SECRET = "aaiclick-test-secret"


class Cloud:
    """One SQS queue, and recorded invocations of functions."""

    def __init__(self, endpoint: str, invocations: list[bytes]) -> None:
        self.sqs = boto3.client("sqs")
        self.endpoint = endpoint
        self.url = self.sqs.create_queue(QueueName="udf")["QueueUrl"]
        self.invocations = invocations
        """Payloads of accepted invocations."""

    def function(self, name: str) -> str:
        role = boto3.client("iam").create_role(RoleName=name, AssumeRolePolicyDocument="{}")["Role"]["Arn"]
        boto3.client("lambda", endpoint_url=self.endpoint).create_function(
            FunctionName=name, Runtime="python3.11", Role=role, Code={"ZipFile": b"no code runs here"},
            Handler="aaiclick.orchestration.worker.lambda_handler.handle",
        )  # fmt: skip
        return name

    def events(self) -> list[dict]:
        return [json.loads(body) for body in self.invocations]

    def waiting(self) -> int:
        """Number of messages, including received ones that are not deleted."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        attributes = self.sqs.get_queue_attributes(QueueUrl=self.url, AttributeNames=names)["Attributes"]
        return sum(int(attributes[name]) for name in names)

    def messages(self) -> list[dict]:
        """Receive and delete all messages."""
        messages = []
        while got := self.sqs.receive_message(QueueUrl=self.url, MaxNumberOfMessages=10).get("Messages"):
            messages += got
            for message in got:
                self.sqs.delete_message(QueueUrl=self.url, ReceiptHandle=message["ReceiptHandle"])
        return [json.loads(message["Body"]) for message in messages]


@pytest.fixture(scope="module")
def ear(moto_endpoint):
    """Proxy for moto that records the payloads of accepted invocations."""
    invocations: list[bytes] = []

    class Ear(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            passed = {name: value for name, value in self.headers.items() if name.lower() != "host"}
            signed = {"Authorization": self.headers["Authorization"]}
            answer = requests.get(moto_endpoint + self.path.removesuffix("/invocations"), headers=signed, timeout=30)
            if answer.ok:  # without containers moto accepts invocations of missing functions
                answer = requests.post(moto_endpoint + self.path, data=body, headers=passed, timeout=30)
                invocations.append(body)
            self.send_response(answer.status_code)
            for name, value in answer.headers.items():
                if name.lower() not in ("content-length", "transfer-encoding", "connection", "date", "server"):
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

        def log_message(self, *_):
            """Silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Ear)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", invocations
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def cloud(moto_endpoint, ear, monkeypatch):
    """An empty moto server, and the environment variables for it."""
    address, invocations = ear
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key-of-a-test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", moto_endpoint)
    monkeypatch.setenv("AWS_ENDPOINT_URL_LAMBDA", address)
    requests.post(f"{moto_endpoint}/moto-api/reset", timeout=30)
    requests.post(f"{moto_endpoint}/moto-api/config", json={"lambda": {"use_docker": False}}, timeout=30)
    invocations.clear()
    boto3_client.make_client.cache_clear()
    yield Cloud(moto_endpoint, invocations)
    boto3_client.make_client.cache_clear()


@pytest.fixture
def runtimes(cloud, monkeypatch):
    """Settings with a queue and a function."""
    monkeypatch.setenv("AAICLICK_RUNTIMES", f"ecs_udf={cloud.url},lambda=crunch")
    get_settings.cache_clear()
    yield get_settings().runtimes
    get_settings.cache_clear()
