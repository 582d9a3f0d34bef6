"""The description that a host receives from the cloud's state: metadata, logins, the environment of its sessions."""

from __future__ import annotations

import json
import os
import re
import sys
import zlib
from pathlib import Path
from typing import Any

from tpubox.google.compute import login_profiles, project_metadata
from tpubox.google.iam import permissions
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.settings import number_of
from tpubox.google.wire.state import Doc
from tpubox.tpu_vms import disks
from tpubox.tpu_vms import network as networks
from tpubox.tpu_vms.logins import logins
from tpukit.catalogue import Slice, find

COORDINATOR_PORT = 8482  # JAX's port, for hosts of one job
NO_MAINTENANCE = '{"error":"no notifications have been received yet, try again later"}'
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def machine(cloud: Cloud, vm: Doc, worker: int, network: networks.Network, token: Doc, google: str) -> Doc:
    """Return the whole description as plain data."""
    endpoint = vm["networkEndpoints"][worker]
    address, external = endpoint["ipAddress"], endpoint.get("accessConfig", {}).get("externalIp")
    project = vm["name"].split("/")[1]
    node, common = vm.get("metadata", {}), project_metadata.attributes(cloud, project)
    return {
        "ssh": [[one, network.ssh_port] for one in (address, external) if one],
        "metadata_address": [address, network.metadata_port],
        "metadata": _metadata(cloud, vm, worker, token["email"]),
        "logins": logins(node, common, login_profiles.who_may_log_in(cloud, project), cloud.clock.now()),
        "env": _environment(vm, f"{address}:{network.metadata_port}", address, google),
        "guest": cloud.state.get("vm_guest", f"{vm['id']}/{worker}") or {},
        "token": token,
        "chips": [find(vm["acceleratorType"]).generation, find(vm["acceleratorType"]).chips_per_host],
        "disks": disks.devices(vm),
        "name": instance_name(vm, worker),
        "hosts": _hosts(vm, address),
    }


def _hosts(vm: Doc, own: str) -> dict[str, str]:
    """Return addresses by name. Where the metadata server has the real port, its real name resolves to it."""
    peers = {instance_name(vm, number): point["ipAddress"] for number, point in enumerate(vm["networkEndpoints"])}
    return {**peers, "metadata.google.internal": own, "metadata": own}


def account_of(vm: Doc) -> str:
    project = vm["name"].split("/")[1]
    return str(vm.get("serviceAccount", {}).get("email") or permissions.default_account(project))


def instance_name(vm: Doc, worker: int) -> str:
    return f"t1v-n-{zlib.crc32(vm['id'].encode()):08x}-w-{worker}"


def _metadata(cloud: Cloud, vm: Doc, worker: int, email: str) -> Doc:
    project, zone = vm["name"].split("/")[1], vm["name"].split("/")[3]
    number = number_of(project)
    endpoint = vm["networkEndpoints"][worker]
    external = endpoint.get("accessConfig", {}).get("externalIp", "")
    name = instance_name(vm, worker)
    account = {"aliases": ["default"], "email": email, "scopes": _scopes(vm)}
    scheduling = vm.get("schedulingConfig", {})
    spot = bool(scheduling.get("spot") or scheduling.get("preemptible") or vm["_holds"]["spot"])
    maintenance = vm.get("upcomingMaintenance")
    instance: dict[str, Any] = {
        "attributes": {**vm.get("metadata", {}), **_attributes(cloud, vm, worker, spot)},
        "hostname": f"{name}.{zone}.c.{project}.internal",
        "id": str(int(vm["id"]) * 10 + worker),
        "image": f"projects/cloud-tpu-v2-images/global/images/{vm['runtimeVersion']}",
        "machine-type": f"projects/{number}/machineTypes/n1-standard-1",  # a guess; programs do not read it
        "maintenance-event": "TERMINATE_ON_HOST_MAINTENANCE" if maintenance else "NONE",
        "name": name,
        "network-interfaces": {
            "0": {
                "access-configs": {"0": {"external-ip": external, "type": "ONE_TO_ONE_NAT"}},
                "ip": endpoint["ipAddress"],
                "network": f"projects/{number}/networks/default",
            }
        },
        "preempted": "TRUE" if (vm.get("_shutdown") or {}).get("preempted") else "FALSE",
        "scheduling": {"automatic-restart": "FALSE", "preemptible": str(spot).upper()},
        "service-accounts": {"default": account, email: account},
        "upcoming-maintenance": _maintenance(maintenance) if maintenance else NO_MAINTENANCE,
        "zone": f"projects/{number}/zones/{zone}",
    }
    return {
        "instance": instance,
        "project": {
            "attributes": project_metadata.attributes(cloud, project),
            "numeric-project-id": number,
            "project-id": project,
        },
        "universe": {"universe-domain": "googleapis.com"},
    }


def _attributes(cloud: Cloud, vm: Doc, worker: int, spot: bool) -> dict[str, str]:
    """Return the attributes that the service adds to the user's: JAX, Ray and many scripts find their peers by them."""
    peers = [endpoint["ipAddress"] for endpoint in vm["networkEndpoints"]]
    env = {**_tpu_env(vm, worker, spot), **_megascale(cloud, vm)}
    return {
        "accelerator-type": vm["acceleratorType"],
        "agent-worker-number": str(worker),
        "instance-id": vm["name"].rpartition("/")[2],
        "tpu-env": "".join(f"{name}: '{value}'\n" for name, value in env.items()),
        "worker-network-endpoints": ",".join(f"unknown:unknown:{peer}" for peer in peers),
    }


def _tpu_env(vm: Doc, worker: int, spot: bool) -> dict[str, str]:
    _, project, _, zone, _, name = vm["name"].split("/")
    shape = find(vm["acceleratorType"])
    inside, hosts = _bounds(shape)
    return {
        "ACCELERATOR_TYPE": shape.name,
        "CHIPS_PER_HOST_BOUNDS": inside,
        "CONSUMER_PROJECT_ID": project,
        "CONSUMER_PROJECT_NUMBER": number_of(project),
        "HOST_BOUNDS": hosts,
        "NODE_ID": name,
        "PREEMPTIBLE": str(spot).lower(),
        "TOPOLOGY": shape.topology,
        "TPU_CHIPS_PER_PROCESS_BOUNDS": inside,
        "TPU_PROCESS_BOUNDS": hosts,
        "TYPE": shape.generation.upper(),
        "UID": vm["id"],
        "WORKER_ID": str(worker),
        "ZONE": zone,
    }


def _megascale(cloud: Cloud, vm: Doc) -> dict[str, str]:
    """Return the variables of a multislice job: only hosts of one queued resource with several slices have them."""
    of = vm.get("_slice")
    first = cloud.state.get("vm", of["first"]) if of else None
    if of is None or first is None:
        return {}
    return {
        "MEGASCALE_COORDINATOR_ADDRESS": first["networkEndpoints"][0]["ipAddress"],
        "MEGASCALE_NUM_SLICES": str(of["count"]),
        "MEGASCALE_SLICE_ID": str(of["number"]),
    }


def _bounds(shape: Slice) -> tuple[str, str]:
    edges = [int(edge) for edge in shape.topology.split("x")] + [1]
    host = {1: (1, 1, 1), 4: (2, 2, 1), 8: (2, 4, 1)}.get(shape.chips_per_host, (2, 2, 1))
    hosts = ",".join(str(max(1, edge // along)) for edge, along in zip(edges[:3], host, strict=True))
    return ",".join(map(str, host)), hosts


def _scopes(vm: Doc) -> list[str]:
    scopes: list[str] = vm.get("serviceAccount", {}).get("scope") or []
    return scopes or ["https://www.googleapis.com/auth/cloud-platform"]


def _maintenance(upcoming: Doc) -> str:
    spelt = {re.sub(r"[A-Z]", lambda letter: f"_{letter[0].lower()}", name): value for name, value in upcoming.items()}
    return json.dumps(spelt)


def _environment(vm: Doc, metadata: str, address: str, google: str) -> dict[str, str]:
    """Return the variables of the image's /etc/environment, and those that make JAX treat CPU devices as chips.

    It has no proxy variables: requests to the metadata server would go to the proxy.
    """
    shape = find(vm["acceleratorType"])
    return {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{_SYSTEM_PATH}",
        "LANG": "C.UTF-8",
        "TPUKIT_SIMULATED_TPU": shape.generation,
        "TPUKIT_SIMULATED_CHIPS": str(shape.chips_per_host),
        "JAX_PLATFORMS": "cpu",
        "JAX_FORCE_TPU_INIT": "1",
        "JAX_NUM_CPU_DEVICES": str(shape.devices_per_host),
        # By default JAX listens on all addresses, where concurrent jobs silently join each other.
        "JAX_COORDINATOR_BIND_ADDRESS": f"{address}:{COORDINATOR_PORT}",
        "GCE_METADATA_HOST": metadata,
        "GCE_METADATA_IP": metadata,
        "GCE_METADATA_ROOT": metadata,
        "STORAGE_EMULATOR_HOST": google,
        "TENSORSTORE_GCS_HTTP_URL": google,
        "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",  # true: it queries the type of bucket by gRPC before every call
        "GOOGLE_VERTEX_AI_CUSTOM_ENDPOINT": f"{google}/vertex_ai/v1/",
    }
