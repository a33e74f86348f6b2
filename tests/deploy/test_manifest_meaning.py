"""What no schema knows of the Kubernetes manifests: that they agree with each other and with us."""

import re

import pytest
import yaml
from grpc_health.v1 import health

from earvoice.api.v1 import (
    decoder_service_pb2,
    encoder_service_pb2,
    speech_translation_service_pb2,
)
from earvoice.decoder.settings import DecoderSettings
from earvoice.encoder.settings import EncoderSettings
from earvoice.policy.settings import PolicySettings
from earvoice.runtime.settings import SettingsError, load_settings
from tests.deploy.manifest import K8S, container_of, name_of, of_kind, pod_of, selects

SETTINGS = {"policy": PolicySettings, "encoder": EncoderSettings, "decoder": DecoderSettings}
SERVICES = {
    "policy": speech_translation_service_pb2.DESCRIPTOR.services_by_name[
        "SpeechTranslationService"
    ],
    "encoder": encoder_service_pb2.DESCRIPTOR.services_by_name["EncoderService"],
    "decoder": decoder_service_pb2.DESCRIPTOR.services_by_name["DecoderService"],
}
# A 32-byte key in hex is long enough for every secret.
SECRET = "00112233445566778899aabbccddeeff" * 2
# Time that a process needs to stop once its sessions have ended or been ended.
STOPPING_S = 10


def ours(objects):
    """The Deployments of the three services, with the component that each is."""
    for deployment in of_kind(objects, "Deployment"):
        component = pod_of(deployment)["metadata"]["labels"].get("app.kubernetes.io/component")
        if component in SERVICES:
            yield component, deployment


def settings_of(component, deployment, monkeypatch):
    for variable in container_of(deployment)["env"]:
        monkeypatch.setenv(variable["name"], variable.get("value", SECRET))
    return load_settings(SETTINGS[component])


def test_settings_and_ports_agree(objects, monkeypatch):
    """Every variable is a setting with an allowed value, and every port is the service's."""
    for component, deployment in ours(objects):
        with monkeypatch.context() as environment:
            settings = settings_of(component, deployment, environment)
        ports = {port["name"]: port["containerPort"] for port in container_of(deployment)["ports"]}
        assert ports == {
            "grpc": settings.port,
            "health": settings.health_port,
            "metrics": settings.metrics_port,
        }
        assert settings.host == "0.0.0.0"


def test_probes_ask_for_what_the_services_tell(objects):
    """Ready is the service's full name; alive is a name that draining does not change."""
    for component, deployment in ours(objects):
        container = container_of(deployment)
        (health_port,) = (
            port["containerPort"] for port in container["ports"] if port["name"] == "health"
        )
        asked = {
            probe: container[probe]["grpc"]
            for probe in ("startupProbe", "livenessProbe", "readinessProbe")
        }
        alive = {"port": health_port, "service": health.SERVICE_NAME}
        ready = {"port": health_port, "service": SERVICES[component].full_name}
        assert asked == {"startupProbe": alive, "livenessProbe": alive, "readinessProbe": ready}


def test_a_pod_may_drain_to_the_end(objects, monkeypatch):
    """The kill comes after preStop, the whole grace, and the time to stop."""
    for component, deployment in ours(objects):
        with monkeypatch.context() as environment:
            grace_s = settings_of(component, deployment, environment).drain_grace_ms / 1000
        asleep_s = container_of(deployment)["lifecycle"]["preStop"]["sleep"]["seconds"]
        longest_s = pod_of(deployment)["spec"]["terminationGracePeriodSeconds"]
        assert longest_s >= asleep_s + grace_s + STOPPING_S


def test_services_reach_pods(objects):
    """A Service's selector finds the pods of one component, and its port is one of theirs."""
    deployments = of_kind(objects, "Deployment")
    for service in of_kind(objects, "Service"):
        found = [item for item in deployments if selects(service["spec"]["selector"], pod_of(item))]
        assert found, name_of(service)
        for deployment in found:
            names = {port["name"] for port in container_of(deployment)["ports"]}
            assert {port["targetPort"] for port in service["spec"]["ports"]} <= names


def test_the_policy_service_asks_headless_services(objects, monkeypatch):
    """Their names have an address for each pod: the policy service chooses among them."""
    services = {name_of(item): item["spec"] for item in of_kind(objects, "Service")}
    for component, deployment in ours(objects):
        if component != "policy":
            continue
        with monkeypatch.context() as environment:
            settings = settings_of(component, deployment, environment)
        for target in (settings.encoder_target, settings.decoder_target):
            name, port = re.fullmatch(r"dns:///([\w-]+):(\d+)", target).groups()
            assert services[name]["clusterIP"] == "None"
            assert services[name]["ports"][0]["port"] == int(port)


def test_no_two_controllers_claim_a_pod(objects):
    """Each pod is one Deployment's and at most one disruption budget's."""
    for deployment in of_kind(objects, "Deployment"):
        for kind, most in (("Deployment", 1), ("PodDisruptionBudget", 1)):
            found = [
                item
                for item in of_kind(objects, kind)
                if selects(item["spec"]["selector"]["matchLabels"], pod_of(deployment))
            ]
            assert len(found) <= most, name_of(deployment)
            if kind == "Deployment":
                assert found == [deployment]


def test_autoscalers_scale_what_is_there(objects):
    """Slowly down, and nobody else says how many; by metrics that the adapter answers."""
    rules = yaml.safe_load((K8S / "components" / "metrics-adapter" / "rules.yaml").read_text())
    answered = {rule["name"]["as"] for rule in rules["rules"]}
    deployments = {name_of(item): item for item in of_kind(objects, "Deployment")}
    for scaler in of_kind(objects, "HorizontalPodAutoscaler"):
        spec = scaler["spec"]
        assert "replicas" not in deployments[spec["scaleTargetRef"]["name"]]["spec"]
        assert spec["minReplicas"] >= 2
        assert {metric["pods"]["metric"]["name"] for metric in spec["metrics"]} <= answered
        down = spec["behavior"]["scaleDown"]
        assert down["stabilizationWindowSeconds"] >= 600
        assert [policy["type"] for policy in down["policies"]] == ["Pods"]


def test_autoscaling_and_budgets_cover_all_services(objects):
    """Where there is autoscaling at all, each of our Deployments has both."""
    names = {name_of(deployment) for _, deployment in ours(objects)}
    scaled = {
        item["spec"]["scaleTargetRef"]["name"]
        for item in of_kind(objects, "HorizontalPodAutoscaler")
    }
    assert scaled in (set(), names)
    budgets = of_kind(objects, "PodDisruptionBudget")
    assert not scaled or names <= {name_of(item) for item in budgets}


def test_no_pod_has_rights(objects):
    """As the `restricted` standard wants it, with a file system that is read only."""
    for deployment in of_kind(objects, "Deployment"):
        pod, container = pod_of(deployment)["spec"], container_of(deployment)
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert "memory" in container["resources"]["limits"]
        assert {"cpu", "memory"} <= container["resources"]["requests"].keys()


def test_only_who_talks_to_the_api_server_has_a_token(objects):
    """A pod's account exists; a token goes to pods whose account has a role."""
    bound = {
        subject["name"]
        for binding in of_kind(objects, "RoleBinding", "ClusterRoleBinding")
        for subject in binding["subjects"]
    }
    accounts = {name_of(item) for item in of_kind(objects, "ServiceAccount")}
    for deployment in of_kind(objects, "Deployment"):
        pod = pod_of(deployment)["spec"]
        assert pod["serviceAccountName"] in accounts
        assert pod["automountServiceAccountToken"] == (pod["serviceAccountName"] in bound)


def test_roles_are_bound_to_accounts_of_the_namespace(objects):
    """But for the autoscaler's own account."""
    accounts = {
        (name_of(item), item["metadata"]["namespace"])
        for item in of_kind(objects, "ServiceAccount")
    }
    for binding in of_kind(objects, "RoleBinding", "ClusterRoleBinding"):
        for subject in binding["subjects"]:
            account = (subject["name"], subject["namespace"])
            assert account in accounts | {("horizontal-pod-autoscaler", "kube-system")}


def test_what_is_mounted_exists_or_is_told(objects):
    """A ConfigMap is rendered; a Secret is, or the README says how it is made."""
    told = set(re.findall(r"`(earvoice-[\w-]+)`", (K8S / "README.md").read_text(encoding="utf8")))
    there = {name_of(item) for item in of_kind(objects, "ConfigMap", "Secret")}
    for deployment in of_kind(objects, "Deployment"):
        spec = pod_of(deployment)["spec"]
        for volume in spec.get("volumes", ()):
            if "configMap" in volume:
                assert volume["configMap"]["name"] in there
            if "secret" in volume:
                assert volume["secret"]["secretName"] in there | told
        mounts = {mount["name"] for mount in container_of(deployment).get("volumeMounts", ())}
        assert mounts == {volume["name"] for volume in spec.get("volumes", ())}
        for variable in container_of(deployment).get("env", ()):
            if "valueFrom" in variable:
                assert variable["valueFrom"]["secretKeyRef"]["name"] in there | told


@pytest.mark.parametrize("component", SERVICES)
def test_a_wrong_variable_would_be_found(component, monkeypatch):
    """The check of settings can fail."""
    monkeypatch.setenv(f"EARVOICE_{component.upper()}_DRAIN_GRACE", "1")
    with pytest.raises(SettingsError, match="no such setting"):
        load_settings(SETTINGS[component])
