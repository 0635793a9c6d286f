"""The Kubernetes manifests and the compose file: their schema, and that their parts fit together."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from lightkube.models import apps_v1, core_v1, networking_v1  # generated from the schema of Kubernetes

from tropism.cli.serve import serve

DEPLOY = Path(__file__).parents[2] / "deploy"
MODULES = {"v1": core_v1, "apps/v1": apps_v1, "networking.k8s.io/v1": networking_v1}
MANIFESTS = [
    manifest
    for path in sorted((DEPLOY / "kubernetes").glob("*.yaml"))
    for manifest in yaml.safe_load_all(path.read_text())
]
COMPOSE = yaml.safe_load((DEPLOY / "compose.workers.yaml").read_text())
TEMPLATE = (DEPLOY / "workers.conf.template").read_text()


def unknown_fields(manifest: Any, known: Any, where: str = "") -> list[str]:
    """The fields of a manifest that are missing from what the models have read of it."""
    if isinstance(manifest, list):
        return [found for pair in zip(manifest, known, strict=True) for found in unknown_fields(*pair, where)]
    if not isinstance(manifest, dict):
        return []
    missing = [f"{where}.{name}" for name in manifest if name not in known]
    below = [unknown_fields(manifest[name], known[name], f"{where}.{name}") for name in manifest if name in known]
    return [*missing, *(found for each in below for found in each)]


def check(manifest: dict[str, Any]) -> list[str]:
    """The errors of a manifest: wrong types and missing fields, and unknown fields."""
    model = getattr(MODULES[manifest["apiVersion"]], manifest["kind"])
    try:
        read = msgspec.convert(manifest, model)
    except msgspec.ValidationError as error:
        return [str(error)]
    return unknown_fields(manifest, msgspec.to_builtins(read))


def named(kind: str, name: str) -> dict[str, Any]:
    return next(each for each in MANIFESTS if (each["kind"], each["metadata"]["name"]) == (kind, name))


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda each: f"{each['kind']}-{each['metadata']['name']}")
def test_each_manifest_fits_the_schema_of_kubernetes(manifest: dict[str, Any]):
    assert check(manifest) == []


def test_mistakes_in_manifests_are_found():
    workers = named("StatefulSet", "tropism-worker")
    assert check(workers | {"spec": workers["spec"] | {"replica": 2}}) == [".spec.replica"]
    assert "Expected `int | null`" in check(workers | {"spec": workers["spec"] | {"replicas": "two"}})[0]
    assert "required field `selector`" in check(workers | {"spec": {"serviceName": "x", "template": {}}})[0]
    container = {"name": "a", "imag": "b"}
    template = {"spec": {"containers": [container]}}
    assert check(workers | {"spec": workers["spec"] | {"template": template}}) == [
        ".spec.template.spec.containers.imag"
    ]


def test_the_parts_on_kubernetes_name_each_other():
    workers, proxy = named("StatefulSet", "tropism-worker")["spec"], named("Deployment", "tropism-proxy")["spec"]
    environment = {each["name"]: each.get("value") for each in proxy["template"]["spec"]["containers"][0]["env"]}
    servers = re.findall(r"server ([\w-]+):8000", environment["WORKERS"])
    assert servers == [f"tropism-worker-{number}" for number in range(workers["replicas"])]
    for name in servers:
        assert named("Service", name)["spec"]["selector"] == {"statefulset.kubernetes.io/pod-name": name}
    kustomization = yaml.safe_load((DEPLOY / "kustomization.yaml").read_text())
    assert {DEPLOY / path for path in kustomization["resources"]} == set((DEPLOY / "kubernetes").glob("*.yaml"))
    (generated,) = kustomization["configMapGenerator"]
    assert generated["name"] == proxy["template"]["spec"]["volumes"][0]["configMap"]["name"]
    assert (DEPLOY / generated["files"][0].partition("=")[2]).exists()
    secret = named("Secret", "tropism")["stringData"]
    references = re.findall(r"secretKeyRef: \{name: tropism, key: (\w+)\}", _all_text())
    assert set(references) == set(secret)


def _all_text() -> str:
    return "".join(path.read_text() for path in (DEPLOY / "kubernetes").glob("*.yaml"))


def test_compose_and_kubernetes_set_what_the_template_and_the_server_read():
    variables = set(re.findall(r"\$\{(\w+)\}", TEMPLATE))
    proxy = named("Deployment", "tropism-proxy")["spec"]["template"]["spec"]["containers"][0]
    assert {each["name"] for each in proxy["env"]} == variables == set(COMPOSE["services"]["proxy"]["environment"])
    workers = set(re.findall(r"server ([\w-]+):8000", COMPOSE["services"]["proxy"]["environment"]["WORKERS"]))
    assert workers == {name for name in COMPOSE["services"] if name.startswith("worker")}
    known = {option.envvar for each in serve.__annotations__.values() for option in getattr(each, "__metadata__", ())}
    for name in re.findall(r"TROPISM_\w+", _all_text() + str(COMPOSE["services"]["worker-1"]["environment"])):
        assert name in known
