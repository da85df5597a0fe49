"""A cloud on loopback: queues and functions by moto's server, and an ear on what functions are invoked with."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import boto3
import pytest
import requests

from aaiclick.orchestration.runtimes import aws
from aaiclick.settings import get_settings
from tests.integration.amazon import VARIABLES
from tests.integration.catalog.conftest import shop as shop
from tests.integration.worker.conftest import bench as bench

SECRET = "aaiclick-test-secret"


class Cloud:
    """One queue, and functions."""

    def __init__(self, endpoint: str, heard: list[bytes]) -> None:
        self.sqs = boto3.client("sqs")
        self.endpoint = endpoint
        self.url = self.sqs.create_queue(QueueName="udf")["QueueUrl"]
        self.heard = heard
        """Payloads of accepted invocations."""

    def function(self, name: str) -> str:
        role = boto3.client("iam").create_role(RoleName=name, AssumeRolePolicyDocument="{}")["Role"]["Arn"]
        boto3.client("lambda", endpoint_url=self.endpoint).create_function(
            FunctionName=name, Runtime="python3.11", Role=role, Code={"ZipFile": b"no code runs here"},
            Handler="aaiclick.orchestration.worker.invoked.handle",
        )  # fmt: skip
        return name

    def events(self) -> list[dict]:
        return [json.loads(each) for each in self.heard]

    def waiting(self) -> int:
        """Messages, also those that somebody has received and not deleted."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self.sqs.get_queue_attributes(QueueUrl=self.url, AttributeNames=names)["Attributes"]
        return sum(int(found[name]) for name in names)

    def messages(self) -> list[dict]:
        """Take all there are."""
        found = []
        while got := self.sqs.receive_message(QueueUrl=self.url, MaxNumberOfMessages=10).get("Messages"):
            found += got
            for each in got:
                self.sqs.delete_message(QueueUrl=self.url, ReceiptHandle=each["ReceiptHandle"])
        return [json.loads(each["Body"]) for each in found]


@pytest.fixture(scope="module")
def ear(moto_endpoint):
    """Passes requests on to moto, and keeps the payloads of invocations that it accepted."""
    heard: list[bytes] = []

    class Ear(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            passed = {name: value for name, value in self.headers.items() if name.lower() != "host"}
            signed = {"Authorization": self.headers["Authorization"]}
            answer = requests.get(moto_endpoint + self.path.removesuffix("/invocations"), headers=signed, timeout=30)
            if answer.ok:  # moto invokes also what is not there, if it has no containers
                answer = requests.post(moto_endpoint + self.path, data=body, headers=passed, timeout=30)
                heard.append(body)
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
    yield f"http://127.0.0.1:{server.server_port}", heard
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def cloud(moto_endpoint, ear, monkeypatch):
    """An empty cloud, and an environment that leads to it."""
    address, heard = ear
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key-of-a-test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", moto_endpoint)
    monkeypatch.setenv("AWS_ENDPOINT_URL_LAMBDA", address)
    requests.post(f"{moto_endpoint}/moto-api/reset", timeout=30)
    requests.post(f"{moto_endpoint}/moto-api/config", json={"lambda": {"use_docker": False}}, timeout=30)
    heard.clear()
    aws.client.cache_clear()
    yield Cloud(moto_endpoint, heard)
    aws.client.cache_clear()


@pytest.fixture
def runtimes(cloud, monkeypatch):
    """Settings that know the queue and a function."""
    monkeypatch.setenv("AAICLICK_RUNTIMES", f"ecs_udf={cloud.url},lambda=crunch")
    get_settings.cache_clear()
    yield get_settings().runtimes
    get_settings.cache_clear()
