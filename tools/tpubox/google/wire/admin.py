"""The emulator's admin API, for tests: faults, limits, recorded requests, and resources.

Below `/emulator/` GET shows, POST adds, DELETE clears:

    faults     the table of faults; POST {"kind": "stockout", ...}; DELETE ?name=
    limits     POST {"quota": {"region", "generation", "chips", "spot"}}, {"stock": {"zone", "generation", "chips"}}
               or {"reservation": {"name", "zone", "generation", "chips"}}
    requests   the requests so far; GET ?agent=&path=&method=
    services   POST makes every project a long-established one, with every API enabled; {"enabled": ["compute", ...]}
               enables only these
    pods       POST {"node", "namespace", "account", "annotated"}: the identity of a Pod, with its token
    mounts     POST as for pods, and {"bucket", "folder", "listed"}: checks the mount of a bucket
    tpu-vms    POST {"action": "freeze", "node": NAME, "worker": 1, ...}: applies a fault to a TPU VM or a host of it
    resources  all resources: GET ?kind=; POST {"kind", "name", "patch"} changes one as no caller of Google could
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from tpubox.google.artifacts import image_pulls
from tpubox.google.compute import stock_and_quota
from tpubox.google.iam import pod_identity
from tpubox.google.projects import services
from tpubox.google.storage import bucket_mounts
from tpubox.google.tpu import vm_faults
from tpubox.google.wire.api import Answer, Request, merged
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.faults import Fault
from tpukit.core.errors import Invalid, TpukitError


def answer(cloud: Cloud, request: Request) -> Answer:
    """Answer a request whose path is below `emulator/`."""
    try:
        body = json.loads(request.content) if request.content.strip() else {}
        act = _ACTS.get((request.method, request.path))
        if act is None:
            return _json(404, {"error": f"there is no {request.method} {request.path}"})
        return _json(200, act(cloud, request.query, body))
    except (TpukitError, KeyError, TypeError, ValueError) as error:
        return _json(400, {"error": f"{type(error).__name__}: {error}"})


def _json(status: int, body: object) -> Answer:
    return Answer(status, json.dumps(body).encode(), {"content-type": "application/json"})


def _set_fault(cloud: Cloud, query: Mapping[str, str], body: dict[str, Any]) -> object:
    return {"name": cloud.faults.set(Fault(**body)).name}


def _clear_faults(cloud: Cloud, query: Mapping[str, str], body: dict[str, Any]) -> object:
    cloud.faults.clear(query.get("name", ""))
    return {}


def _limit(cloud: Cloud, query: Mapping[str, str], body: dict[str, Any]) -> object:
    setters: dict[str, Callable[..., None]] = {
        "quota": stock_and_quota.limit_quota,
        "stock": stock_and_quota.limit_stock,
        "reservation": stock_and_quota.reserve,
    }
    for kind, words in body.items():
        if kind not in setters:
            raise Invalid(f"there is no limit {kind!r}", hint=f"write one of {', '.join(setters)}")
        setters[kind](cloud, **words)
    return cloud.state.all("limit")


def _clear_limits(cloud: Cloud, query: Mapping[str, str], body: dict[str, Any]) -> object:
    with cloud.state.transaction():
        for name in cloud.state.all("limit"):
            cloud.state.delete("limit", name)
    return {}


def _forget_requests(cloud: Cloud, query: Mapping[str, str], body: dict[str, Any]) -> object:
    cloud.state.forget_requests()
    return {}


def _enable(cloud: Cloud, query: Mapping[str, str], body: dict[str, Any]) -> object:
    names = body.get("enabled", [name.partition(".")[0] for name in services.known(cloud)])
    with cloud.state.transaction():
        for project in cloud.settings.projects:
            for name in names:
                full = f"projects/{project}/services/{name}.googleapis.com"
                cloud.state.put("service", full, {"state": "ENABLED", "_since": 0.0})
            if "enabled" not in body:
                cloud.state.put("identity_pool", project, {"since": cloud.stamp()})
    return {"enabled": names}


def _strike_vm(cloud: Cloud, query: Mapping[str, str], body: dict[str, Any]) -> object:
    return vm_faults.strike(cloud, **body)


def _resources(cloud: Cloud, query: Mapping[str, str], body: dict[str, Any]) -> object:
    kind = query.get("kind")
    return cloud.state.all(kind) if kind else cloud.inventory()


def _patch(cloud: Cloud, query: Mapping[str, str], body: dict[str, Any]) -> object:
    with cloud.state.transaction():
        old = cloud.state.get(body["kind"], body["name"])
        if old is None:
            raise Invalid(f"there is no {body['kind']} {body['name']}")
        new = merged(old, body["patch"])
        cloud.state.put(body["kind"], body["name"], new)
    return new


_Act = Callable[[Cloud, Mapping[str, str], dict[str, Any]], object]
_ACTS: dict[tuple[str, str], _Act] = {
    ("GET", "emulator/faults"): lambda cloud, query, body: cloud.faults.table(),
    ("POST", "emulator/faults"): _set_fault,
    ("DELETE", "emulator/faults"): _clear_faults,
    ("GET", "emulator/limits"): lambda cloud, query, body: cloud.state.all("limit"),
    ("POST", "emulator/limits"): _limit,
    ("DELETE", "emulator/limits"): _clear_limits,
    ("GET", "emulator/requests"): lambda cloud, query, body: cloud.requests(**query),
    ("DELETE", "emulator/requests"): _forget_requests,
    ("POST", "emulator/services"): _enable,
    ("POST", "emulator/pods"): lambda cloud, query, body: pod_identity.identify(cloud, **body),
    ("POST", "emulator/pulls"): lambda cloud, query, body: image_pulls.pull(cloud, **body),
    ("POST", "emulator/mounts"): lambda cloud, query, body: bucket_mounts.mount(cloud, **body),
    ("POST", "emulator/tpu-vms"): _strike_vm,
    ("GET", "emulator/resources"): _resources,
    ("POST", "emulator/resources"): _patch,
}
