"""The command line of each component of the control plane.

Defaults are GKE's where a job could notice; the differences detect lost hosts within seconds and let one small machine
carry a thousand simulated ones. Everything listens on loopback only and requires a token, except the probes `/healthz`
and `/readyz`, which reveal nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tpubox.box import folder as folders
from tpubox.box import manifests, releases
from tpubox.box.binaries import Binaries
from tpubox.box.folder import HOST, Folder

_LEASE_SECONDS = 80  # of simulated nodes: renewed every quarter of it, which is 50 times a second for 1,000 of them
_GRACE_SECONDS = 40  # a node that was silent for so long is lost; GKE waits 50
_EVICTED_AFTER = 30  # seconds after that until its pods are evicted; GKE waits 300
_REQUESTS = 400  # per second, of each controller: their defaults are for a shared cluster


@dataclass(frozen=True, slots=True)
class Component:
    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    probe: str = ""  # returns 200 when it is ready; "" if it does not listen
    starts_pods: bool = False  # it starts pods, and they outlive it


def store(folder: Folder, binaries: Binaries) -> Component:
    certificates = folder.certificates("etcd")
    client, peer = folder.url("etcd"), folder.url("etcd-peer")
    flags = {
        "name": "sandbox",
        "data-dir": folder.path / "etcd",
        "listen-client-urls": client,
        "advertise-client-urls": client,
        "listen-peer-urls": peer,
        "initial-advertise-peer-urls": peer,
        "initial-cluster": f"sandbox={peer}",
        "client-cert-auth": "true",
        "peer-client-cert-auth": "true",
        # Without fsync, data is lost only if the whole machine stops: then the sandbox is lost anyway.
        "unsafe-no-fsync": "true",
        "auto-compaction-retention": "5m",
        "quota-backend-bytes": 4 << 30,
        "log-level": "warn",
    }
    for whose in ("", "peer-"):
        flags |= {
            f"{whose}cert-file": certificates / "tls.crt",
            f"{whose}key-file": certificates / "tls.key",
            f"{whose}trusted-ca-file": certificates / "ca.crt",
        }
    return Component("etcd", _argv(binaries, "etcd", flags))


def api_server(folder: Folder, binaries: Binaries) -> Component:
    etcd, cluster = folder.certificates("etcd"), folder.certificates("cluster")
    accounts = folder.certificates("accounts.key")
    # The add-on tunnel knows the processes behind Services, and the node agent.
    keys = {"caBundle": "ca.crt", "clientCert": "tls.crt", "clientKey": "tls.key"}
    tcp = {"url": folder.url("addons-webhook"), "tlsConfig": {key: str(cluster / file) for key, file in keys.items()}}
    through = {"proxyProtocol": "HTTPConnect", "transport": {"tcp": tcp}}
    egress = {
        "apiVersion": "apiserver.k8s.io/v1beta1",
        "kind": "EgressSelectorConfiguration",
        "egressSelections": [{"name": "cluster", "connection": through}],
    }
    flags = {
        "egress-selector-config-file": folder.config("egress", egress),
        "etcd-servers": folder.url("etcd"),
        "etcd-cafile": etcd / "ca.crt",
        "etcd-certfile": etcd / "tls.crt",
        "etcd-keyfile": etcd / "tls.key",
        "bind-address": HOST,
        "advertise-address": HOST,
        "secure-port": folder.ports["kube-apiserver"],
        "tls-cert-file": cluster / "tls.crt",
        "tls-private-key-file": cluster / "tls.key",
        # To the node agent, for logs and exec.
        "kubelet-certificate-authority": cluster / "ca.crt",
        "kubelet-client-certificate": cluster / "tls.crt",
        "kubelet-client-key": cluster / "tls.key",
        "kubelet-preferred-address-types": "InternalIP",
        # For the other servers, which ask the API server whom to trust. No certificate carries rights.
        "client-ca-file": cluster / "ca.crt",
        "anonymous-auth": "false",
        "token-auth-file": folder.path / "config" / "tokens.csv",
        "authorization-mode": "RBAC",
        # A pod that requests chips tolerates the taint of their nodes, as on GKE:
        # https://cloud.google.com/kubernetes-engine/docs/how-to/tpus#how-tpus-work
        "enable-admission-plugins": "ExtendedResourceToleration",
        "service-account-issuer": folder.server,
        "service-account-signing-key-file": accounts,
        "service-account-key-file": accounts.with_suffix(".pub"),
        "service-cluster-ip-range": "10.96.0.0/16",
        # The Endpoints of the API server itself may not be a loopback address.
        "endpoint-reconciler-type": "none",
        "default-not-ready-toleration-seconds": _EVICTED_AFTER,
        "default-unreachable-toleration-seconds": _EVICTED_AFTER,
        "profiling": "false",
    }
    return Component(
        "kube-apiserver",
        _argv(binaries, "kube-apiserver", flags),
        probe=f"{folder.server}/readyz",
    )


def controller_manager(folder: Folder, binaries: Binaries) -> Component:
    flags = {
        **_kubernetes_controller(folder, "kube-controller-manager"),
        # It needs a range of pod addresses to assign; here the node agent assigns them.
        "controllers": "*,-node-ipam-controller",
        "use-service-account-credentials": "true",
        "service-account-private-key-file": folder.certificates("accounts.key"),
        "root-ca-file": folder.certificates("cluster") / "ca.crt",
        "flex-volume-plugin-dir": folder.path / "home" / "volume-plugins",  # by default it creates one below /usr
        "node-monitor-period": "1s",
        "node-monitor-grace-period": f"{_GRACE_SECONDS}s",
        "node-startup-grace-period": f"{_GRACE_SECONDS}s",
        # By default one lost node is handled every ten seconds, and a lost pool takes minutes.
        "node-eviction-rate": 100,
        "secondary-node-eviction-rate": 100,
    }
    return Component(
        "kube-controller-manager",
        _argv(binaries, "kube-controller-manager", flags),
        probe=f"{folder.url('kube-controller-manager')}/healthz",
    )


def scheduler(folder: Folder, binaries: Binaries) -> Component:
    flags = _kubernetes_controller(folder, "kube-scheduler")
    return Component(
        "kube-scheduler", _argv(binaries, "kube-scheduler", flags), probe=f"{folder.url('kube-scheduler')}/healthz"
    )


def jobset(folder: Folder, binaries: Binaries, released: Mapping[str, Any], run: str) -> Component:
    """Return JobSet with its released configuration, adapted to a process outside a cluster."""
    config = {**released, **_webhook_controller(folder, "jobset"), "internalCertManagement": {"enable": False}}
    return _with_config(folder, binaries, "jobset", config, run)


def kueue(folder: Folder, binaries: Binaries, released: Mapping[str, Any], run: str) -> Component:
    config = {
        **released,
        **_webhook_controller(folder, "kueue"),
        # When off, it looks for other certificates in a system folder.
        "internalCertManagement": {"enable": True},
        "integrations": {**released.get("integrations", {}), "frameworks": list(releases.FRAMEWORKS)},
        # It would listen on a fixed port of every address.
        "featureGates": {**released.get("featureGates", {}), "VisibilityOnDemand": False},
    }
    return _with_config(folder, binaries, "kueue", config, run)


def kwok(folder: Folder, binaries: Binaries) -> Component:
    # The default is four at a time: a thousand nodes would renew their leases too late.
    workers = dict.fromkeys(("nodeLeaseParallelism", "nodePlayStageParallelism", "podPlayStageParallelism"), 16)
    settings = {"apiVersion": "config.kwok.x-k8s.io/v1alpha1", "kind": "KwokConfiguration", "options": workers}
    stages = folder.config("kwok", [settings, *manifests.kwok_stages(binaries.manifests("kwok-stages"))])
    flags = {
        "kubeconfig": folder.identity("kwok"),
        "config": stages,
        "manage-all-nodes": "false",
        "manage-nodes-with-annotation-selector": "kwok.x-k8s.io/node=fake",
        "node-lease-duration-seconds": _LEASE_SECONDS,
        "node-port": 0,  # no server
        "v": "WARN",  # otherwise it logs a line for each heartbeat of each node
    }
    return Component("kwok", _argv(binaries, "kwok", flags))


def _kubernetes_controller(folder: Folder, name: str) -> dict[str, object]:
    cluster, identity = folder.certificates("cluster"), folder.identity(name)
    return {
        "kubeconfig": identity,
        "authentication-kubeconfig": identity,
        "authorization-kubeconfig": identity,
        "bind-address": HOST,
        "secure-port": folder.ports[name],
        "tls-cert-file": cluster / "tls.crt",
        "tls-private-key-file": cluster / "tls.key",
        "kube-api-qps": _REQUESTS,
        "kube-api-burst": 2 * _REQUESTS,
        "leader-elect": "false",
        "profiling": "false",
    }


def _webhook_controller(folder: Folder, name: str) -> dict[str, object]:
    return {
        "health": {"healthProbeBindAddress": f"{HOST}:{folder.ports[name]}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {
            "host": HOST,
            "port": folder.ports[f"{name}-webhook"],
            "certDir": str(folder.certificates("webhooks")),
        },
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"qps": _REQUESTS, "burst": 2 * _REQUESTS},
    }


def _with_config(folder: Folder, binaries: Binaries, name: str, config: object, run: str) -> Component:
    # Outside config/, which restarts all components: it comes and goes with what is installed.
    file = folder.path / "addons" / f"{name}-{run}.json"
    folders.write(file, json.dumps(config, indent=1))
    argv = (binaries.program(name), f"--config={file}", "--zap-log-level=error")
    return Component(name, argv, {"KUBECONFIG": str(folder.identity(name))}, probe=addon_probe(folder, name))


def addon_probe(folder: Folder, name: str) -> str:
    return f"http://{HOST}:{folder.ports[name]}/readyz"


def _argv(binaries: Binaries, program: str, flags: Mapping[str, object]) -> tuple[str, ...]:
    return (binaries.program(program), *(f"--{name}={value}" for name, value in flags.items()))
