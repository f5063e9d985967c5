"""The Kubernetes manifests: Kubernetes' own schemas accept them, and they run what docker-compose.yml runs.

KubeRay's schema of a RayCluster is in no package, so its fields are declared here; the pods in it are held against
Kubernetes' schema like all others. No cluster is started.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Annotated, Any

import kubernetes_validate
import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from .files import MANIFESTS, ROOT, duration, manifests, services, stages, yaml

pytestmark = pytest.mark.full

VERSION = "1.32"
"""A version of Kubernetes that is older than those in use: what it knows, they know."""
OBJECTS = list(manifests())
KUSTOMIZATION: dict[str, Any] = yaml(MANIFESTS / "kustomization.yaml")
TEMPLATED = {"Deployment", "StatefulSet"}


class Strict(BaseModel):
    """An object without other fields than these."""

    model_config = ConfigDict(extra="forbid", strict=True)


class HeadGroup(Strict):
    """``headGroupSpec``."""

    rayStartParams: dict[str, str]
    template: dict[str, Any]


class WorkerGroup(HeadGroup):
    """One of ``workerGroupSpecs``."""

    groupName: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")]
    replicas: Annotated[int, Field(ge=0)]
    minReplicas: Annotated[int, Field(ge=0)]
    maxReplicas: Annotated[int, Field(ge=0)]


class RayClusterSpec(Strict):
    """``spec`` of a RayCluster."""

    rayVersion: str
    headGroupSpec: HeadGroup
    workerGroupSpecs: list[WorkerGroup]


def named(kind: str, name: str) -> dict[str, Any]:
    """The one object of a kind and name."""
    (found,) = [each for each in OBJECTS if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return found


def ray() -> dict[str, Any]:
    return named("RayCluster", "telegrad")


def templates() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every pod's template, by the name of the service in docker-compose.yml."""
    yield "gateway", named("Deployment", "gateway")["spec"]["template"]
    yield "postgres", named("StatefulSet", "postgres")["spec"]["template"]
    yield "ray-head", ray()["spec"]["headGroupSpec"]["template"]
    cpu, gpu = ray()["spec"]["workerGroupSpecs"]
    yield "worker", cpu["template"]
    yield "worker-gpu", gpu["template"]


PODS = dict(templates())


def container(name: str) -> dict[str, Any]:
    (only,) = PODS[name]["spec"]["containers"]
    found: dict[str, Any] = only
    return found


def environment(name: str) -> dict[str, Any]:
    """A container's variables: their values, or where these come from."""
    given = {each["name"]: each.get("value", each.get("valueFrom")) for each in container(name).get("env", [])}
    for source in container(name).get("envFrom", []):
        given = named("ConfigMap", source["configMapRef"]["name"])["data"] | given
    return given


def labels(name: str) -> dict[str, str]:
    """A pod's labels, with that of its Ray cluster, which KubeRay adds."""
    found = dict(PODS[name]["metadata"]["labels"])
    return found | (
        {"ray.io/cluster": ray()["metadata"]["name"]} if name in {"ray-head", "worker", "worker-gpu"} else {}
    )


def selects(selector: dict[str, Any], name: str) -> bool:
    """Whether a selector selects a pod."""
    given = labels(name)
    equal = all(given.get(key) == value for key, value in selector.get("matchLabels", {}).items())
    within = all(
        given.get(each["key"]) in each["values"]
        for each in selector.get("matchExpressions", [])
        if each["operator"] == "In"
    )
    return equal and within


# Schemas -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "manifest",
    [each for each in OBJECTS if each["kind"] not in {"RayCluster"}],
    ids=lambda each: f"{each['kind']}-{each['metadata']['name']}",
)
def test_kubernetes_accepts_an_object(manifest: dict[str, Any]) -> None:
    kubernetes_validate.validate(manifest, VERSION, strict=True)
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate({**manifest, "spek": {}}, VERSION, strict=True)


def test_a_ray_cluster_has_the_fields_of_one() -> None:
    assert (ray()["apiVersion"], ray()["kind"]) == ("ray.io/v1", "RayCluster")
    RayClusterSpec.model_validate(ray()["spec"])
    with pytest.raises(ValidationError):
        RayClusterSpec.model_validate({**ray()["spec"], "workerGroups": []})
    groups = [group["groupName"] for group in ray()["spec"]["workerGroupSpecs"]]
    assert len(set(groups)) == len(groups)
    assert all(
        group["minReplicas"] <= group["replicas"] <= group["maxReplicas"] for group in ray()["spec"]["workerGroupSpecs"]
    )


@pytest.mark.parametrize("name", PODS)
def test_kubernetes_accepts_a_pod(name: str) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", **PODS[name], "metadata": {"name": name, **PODS[name]["metadata"]}}
    kubernetes_validate.validate(pod, VERSION, strict=True)


def test_kustomize_finds_every_file() -> None:
    files = {path.name for path in MANIFESTS.iterdir()} - {"kustomization.yaml"}
    assert set(KUSTOMIZATION["resources"]) == files
    assert KUSTOMIZATION["resources"][0] == "namespace.yaml"
    images = {each["name"] for each in KUSTOMIZATION["images"]}
    assert images == {container(name)["image"] for name in PODS if name != "postgres"}
    assert all(each["metadata"].get("namespace") == "telegrad" for each in OBJECTS if each["kind"] != "Namespace")


# The same as in docker-compose.yml ---------------------------------------------------------------


@pytest.mark.parametrize("name", PODS)
def test_a_pod_runs_what_the_service_runs(name: str) -> None:
    service, pod = services()[name], container(name)
    entrypoint = service.get("entrypoint") or (["telegrad"] if name != "postgres" else None)
    assert pod["image"] == service["image"]
    assert pod.get("command", entrypoint) == entrypoint
    address = {"ray-head:6379": "$(FQ_RAY_IP):6379"}
    assert pod.get("args") == ([address.get(word, word) for word in service["command"]] if service["command"] else None)


def test_ray_is_the_one_of_the_images() -> None:
    (pinned,) = re.findall(r"^ray==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert ray()["spec"]["rayVersion"] == pinned
    assert ray()["metadata"]["annotations"] == {"ray.io/overwrite-container-cmd": "true"}


@pytest.mark.parametrize("name", ["gateway", "worker", "worker-gpu"])
def test_a_pod_has_the_settings_of_the_service(name: str) -> None:
    composed = {key: value for key, value in services()[name]["environment"].items() if value is not None}
    given = environment(name)
    for variable in (
        "TELEGRAD_HOST",
        "TELEGRAD_PORT",
        "TELEGRAD_DATABASE_URL",
        "TELEGRAD_DATA_DIR",
        "TELEGRAD_DRAIN_S",
    ):
        assert given.get(variable) == composed.get(variable), variable
    assert given["TELEGRAD_REQUIRE_KEYS"] == "true" and "TELEGRAD_INSECURE" not in given


def test_a_worker_on_a_gpu_differs_in_its_image_and_device_only() -> None:
    gpu = copy.deepcopy(container("worker-gpu"))
    assert gpu["resources"]["limits"].pop("nvidia.com/gpu") == gpu["resources"]["requests"].pop("nvidia.com/gpu") == "1"
    assert {**gpu, "image": "telegrad-worker"} == container("worker")


@pytest.mark.parametrize("name", ["postgres", "ray-head"])
def test_a_pod_is_probed_as_the_service_is(name: str) -> None:
    kind, *command = services()[name]["healthcheck"]["test"]
    assert kind == "CMD"
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container(name)[probe]["exec"]["command"] == command


@pytest.mark.parametrize("name", ["gateway", "worker", "worker-gpu"])
def test_a_pod_of_ours_is_probed_over_http(name: str) -> None:
    pod = container(name)
    assert [port["containerPort"] for port in pod["ports"] if port["name"] == "http"] == [8000]
    paths = {probe: pod[probe]["httpGet"] for probe in ("startupProbe", "readinessProbe", "livenessProbe")}
    assert {get["port"] for get in paths.values()} == {"http"}
    assert [get["path"] for get in paths.values()] == ["/healthz", "/readyz", "/healthz"]
    grace = PODS[name]["spec"]["terminationGracePeriodSeconds"]
    assert grace == duration(services()[name]["stop_grace_period"])


# Shut in -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PODS)
def test_a_pod_is_as_restricted_as_its_namespace_demands(name: str) -> None:
    spec, pod = PODS[name]["spec"], container(name)
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True and spec["securityContext"]["runAsUser"] == 10001
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
    assert pod["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"cpu", "memory"} <= set(pod["resources"]["limits"]) and {"cpu", "memory"} <= set(
        pod["resources"]["requests"]
    )
    mounted = {mount["name"] for mount in pod["volumeMounts"]}
    claimed = {each["metadata"]["name"] for each in named("StatefulSet", "postgres")["spec"]["volumeClaimTemplates"]}
    assert mounted == {volume["name"] for volume in spec["volumes"]} | (claimed if name == "postgres" else set())
    assert "/tmp" in {mount["mountPath"] for mount in pod["volumeMounts"]}
    for volume in spec["volumes"]:
        assert "hostPath" not in volume
        if "persistentVolumeClaim" in volume:
            named("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"])


def test_secrets_are_only_named_and_the_documentation_makes_them() -> None:
    assert not any(each["kind"] == "Secret" for each in OBJECTS)
    text = (ROOT / "docs" / "how-to" / "kubernetes.md").read_text()
    for name in PODS:
        for value in environment(name).values():
            if isinstance(value, dict) and "secretKeyRef" in value:
                secret = value["secretKeyRef"]
                assert f"create secret generic {secret['name']} --from-literal={secret['key']}=" in text


def test_selectors_select_their_pods() -> None:
    for kind, name, service in (("Deployment", "gateway", "gateway"), ("StatefulSet", "postgres", "postgres")):
        selector = named(kind, name)["spec"]["selector"]
        assert [each for each in PODS if selects(selector, each)] == [service]
    for kind, name, service in (("Service", "telegrad", "gateway"), ("Service", "postgres", "postgres")):
        selector = {"matchLabels": named(kind, name)["spec"]["selector"]}
        assert [each for each in PODS if selects(selector, each)] == [service]
    budget = named("PodDisruptionBudget", "gateway")["spec"]["selector"]
    assert [each for each in PODS if selects(budget, each)] == ["gateway"]


def test_pods_are_reached_by_those_who_need_them_alone() -> None:
    policies = [each["spec"] for each in OBJECTS if each["kind"] == "NetworkPolicy"]
    assert {"podSelector": {}, "policyTypes": ["Ingress"]} in policies, "what is not listed may not connect"

    def may(source: str, target: str, port: int) -> bool:
        rules = [
            rule for policy in policies if selects(policy["podSelector"], target) for rule in policy.get("ingress", [])
        ]
        return any(
            all(each["port"] == port for each in rule.get("ports", []))
            and (
                "from" not in rule
                or any("podSelector" in who and selects(who["podSelector"], source) for who in rule["from"])
            )
            for rule in rules
        )

    reached = {
        (source, target, port)
        for source in PODS
        for target in PODS
        for port in (8000, 5432, 6379)
        if source != target and may(source, target, port)
    }
    workers, cluster = ["worker", "worker-gpu"], ["ray-head", "worker", "worker-gpu"]
    assert {pair for pair in reached if pair[1] == "postgres"} == {
        (name, "postgres", 5432) for name in ["gateway", *workers]
    }
    assert {pair for pair in reached if pair[0] == "gateway"} == {
        ("gateway", "postgres", 5432), *(("gateway", worker, 8000) for worker in workers)
    }  # fmt: skip
    assert {pair[0] for pair in reached if pair[1] == "ray-head"} == set(workers)
    assert all(may(source, target, 6379) for source in cluster for target in cluster)
    assert not any(may("postgres", target, port) for target in cluster for port in (6379, 8000))


def test_the_images_folders_are_where_volumes_are_mounted() -> None:
    made = next(text for name, text in stages()["worker"] if name == "RUN" and "install --directory" in text)
    for name in ("worker", "worker-gpu"):
        folders = {mount["mountPath"] for mount in container(name)["volumeMounts"]} - {"/tmp"}
        assert folders == {environment(name)["TELEGRAD_DATA_DIR"]} and folders <= set(made.split())
