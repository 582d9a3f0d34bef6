"""Values that GKE fills into clusters and node pools, as recorded conversations show."""

from __future__ import annotations

import ipaddress
import zlib

from tpubox.google.gke import pod_ranges
from tpubox.google.wire.api import merged
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.state import Doc
from tpukit.catalogue.zones import offers

SCOPES = [
    f"https://www.googleapis.com/auth/{scope}"
    for scope in (
        *("devstorage.read_only", "logging.write", "monitoring", "service.management.readonly", "servicecontrol"),
        "trace.append",
    )
]
"""Default OAuth scopes of nodes: they can read buckets but not write to them."""
_MANAGED = {"autoRepair": True, "autoUpgrade": True}
_PODS, _SERVICES = "10.112.0.0/14", "34.118.224.0/20"
"""Ranges of a cluster that names none. GKE's choice depends on which are free."""
_READ_ONLY_PORT = {"insecureKubeletReadonlyPortEnabled": False}
_MODELS = {"spot": "spot", "flex-start": "flex-start", "reservation": "reservation-bound"}
_CLUSTER: Doc = {
    "addonsConfig": {
        "gcePersistentDiskCsiDriverConfig": {"enabled": True},
        "kubernetesDashboard": {"disabled": True},
        "networkPolicyConfig": {"disabled": True},
    },
    "anonymousAuthenticationConfig": {"mode": "ENABLED"},
    "autopilot": {},
    "autoscaling": {
        "autoprovisioningNodePoolDefaults": {
            "imageType": "COS_CONTAINERD",
            "management": _MANAGED,
            "oauthScopes": SCOPES,
            "serviceAccount": "default",
        },
        "autoscalingProfile": "BALANCED",
    },
    "binaryAuthorization": {},
    "controlPlaneEndpointsConfig": {
        "dnsEndpointConfig": {"allowExternalTraffic": False, "enableK8sTokensViaDns": False},
        "ipEndpointsConfig": {
            "authorizedNetworksConfig": {"gcpPublicCidrsAccessEnabled": True},
            "enablePublicEndpoint": True,
            "enabled": True,
            "globalAccess": False,
        },
    },
    "databaseEncryption": {"currentState": "CURRENT_STATE_DECRYPTED", "state": "DECRYPTED"},
    "defaultMaxPodsConstraint": {"maxPodsPerNode": str(pod_ranges.DEFAULT_MAX_PODS)},
    "enterpriseConfig": {"clusterTier": "STANDARD"},
    "ipAllocationPolicy": {"podCidrOverprovisionConfig": {}, "stackType": "IPV4"},
    "legacyAbac": {},
    "loggingConfig": {"componentConfig": {"enableComponents": ["SYSTEM_COMPONENTS", "WORKLOADS"]}},
    "loggingService": "logging.googleapis.com/kubernetes",
    "masterAuth": {"clientCertificateConfig": {}},
    "masterAuthorizedNetworksConfig": {"gcpPublicCidrsAccessEnabled": True},
    "monitoringConfig": {
        "advancedDatapathObservabilityConfig": {},
        "componentConfig": {
            "enableComponents": [
                *("SYSTEM_COMPONENTS", "DAEMONSET", "DEPLOYMENT", "STATEFULSET", "JOBSET", "STORAGE", "HPA", "POD"),
                *("CADVISOR", "KUBELET", "DCGM"),
            ]
        },
        "managedPrometheusConfig": {"enabled": True},
    },
    "monitoringService": "monitoring.googleapis.com/kubernetes",
    "networkConfig": {"serviceExternalIpsConfig": {}},
    "nodePoolAutoConfig": {"nodeKubeletConfig": _READ_ONLY_PORT},
    "nodePoolDefaults": {
        "nodeConfigDefaults": {
            "loggingConfig": {"variantConfig": {"variant": "DEFAULT"}},
            "nodeKubeletConfig": _READ_ONLY_PORT,
        }
    },
    "notificationConfig": {"pubsub": {}},
    "podAutoscaling": {"hpaProfile": "PERFORMANCE"},
    "rbacBindingConfig": {
        "enableInsecureBindingSystemAuthenticated": True,
        "enableInsecureBindingSystemUnauthenticated": True,
    },
    "releaseChannel": {"channel": "REGULAR"},
    "securityPostureConfig": {"mode": "BASIC", "vulnerabilityMode": "VULNERABILITY_MODE_UNSPECIFIED"},
    "shieldedNodes": {"enabled": True},
    "userManagedKeysConfig": {},
}


def cluster(cloud: Cloud, project: str, body: Doc, network: str, subnet: str) -> Doc:
    """Return a cluster's document with its defaults, and with the values derived from the subnetwork's ranges."""
    found = merged(_CLUSTER, body)
    if not (body.get("releaseChannel") or {}).get("channel"):
        found["releaseChannel"] = _CLUSTER["releaseChannel"]
    ranges = (cloud.state.get("subnetwork", subnet) or {}).get("secondaryIpRanges", [])
    blocks = {each["rangeName"]: each["ipCidrRange"] for each in ranges}
    policy = found["ipAllocationPolicy"]
    pods = blocks.get(policy.get("clusterSecondaryRangeName", "")) or policy.get("clusterIpv4CidrBlock") or _PODS
    services = (
        blocks.get(policy.get("servicesSecondaryRangeName", "")) or policy.get("servicesIpv4CidrBlock") or _SERVICES
    )
    number = str(10**18 + cloud.state.next())
    return merged(
        found,
        {
            "clusterIpv4Cidr": pods,
            "servicesIpv4Cidr": services,
            "id": number,
            "labelFingerprint": f"{zlib.crc32(repr(body.get('resourceLabels')).encode()):08x}",
            "ipAllocationPolicy": {
                "useIpAliases": True,
                "clusterIpv4Cidr": pods,
                "clusterIpv4CidrBlock": pods,
                "servicesIpv4Cidr": services,
                "servicesIpv4CidrBlock": services,
            },
            # Short names here, full names below networkConfig.
            "network": network.rpartition("/")[2],
            "subnetwork": subnet.rpartition("/")[2],
            "maintenancePolicy": {"resourceVersion": f"{zlib.crc32(number.encode()):08x}"},
        },
    )


def pool(cluster_doc: Doc, body: Doc, capacity: str) -> Doc:
    """Return the defaults of a pool."""
    sent = body.get("config") or {}
    # GKE's choice in a zone without e2 (us-central2-b) is a guess.
    small = "n2-standard-2" if offers(cluster_doc["locations"][0], "e2-medium") is False else "e2-medium"
    pods = pod_ranges.max_pods(cluster_doc, body)
    policy = cluster_doc["ipAllocationPolicy"]
    named = (body.get("networkConfig") or {}).get("podRange")
    config: Doc = {
        "diskSizeGb": 100,
        "diskType": "pd-balanced",
        "effectiveCgroupMode": "EFFECTIVE_CGROUP_MODE_V2",
        "imageType": "COS_CONTAINERD",
        "kubeletConfig": {**_READ_ONLY_PORT, "maxParallelImagePulls": 2},
        "machineType": small,
        "metadata": {"disable-legacy-endpoints": "true"},
        "resourceLabels": {"goog-gke-node-pool-provisioning-model": _MODELS.get(capacity, "on-demand")},
        "serviceAccount": "default",
        "shieldedInstanceConfig": {"enableIntegrityMonitoring": True},
        "windowsNodeConfig": {},
        **({} if sent.get("oauthScopes") else {"oauthScopes": SCOPES}),
    }
    return {
        "initialNodeCount": 0,
        "locations": cluster_doc["locations"],
        # A field left out of settings that were sent is 0 or false, as clients leave out such values.
        "management": {} if body.get("management") else dict(_MANAGED),
        "maxPodsConstraint": {"maxPodsPerNode": str(pods)},
        "networkConfig": {
            "podIpv4CidrBlock": cluster_doc["clusterIpv4Cidr"],
            "podRange": named or policy.get("clusterSecondaryRangeName") or _made_range(body),
            "subnetwork": cluster_doc["networkConfig"]["subnetwork"],
        },
        "podIpv4CidrSize": ipaddress.IPV4LENGTH - (2 * pods - 1).bit_length(),
        "upgradeSettings": {"strategy": "SURGE", **({} if body.get("upgradeSettings") else {"maxSurge": 1})},
        "config": config,
    }


def _made_range(body: Doc) -> str:
    """Return the name of the range that GKE creates for a pool if the cluster names none."""
    name = str(body.get("name", ""))
    return f"{name}-pods-{zlib.crc32(name.encode()):08x}"


def boot_disk(config: Doc) -> Doc:
    """Return the boot disk of a node, which GKE shows in two places."""
    return {"diskType": config["diskType"], "sizeGb": str(config["diskSizeGb"])}
