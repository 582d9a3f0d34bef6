"""A cloud without a network and with a manual clock, and helpers to send requests to it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from tpubox.google import APIS
from tpubox.google.wire import routing
from tpubox.google.wire.api import Api, Request
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.settings import EVERY_API, Hooks, Settings
from tpukit.core.clock import ManualClock

PROJECT = "tpu-project"


class World:
    """A cloud for tests. Use `ask` to require success, and `refusal` to require an error."""

    def __init__(
        self,
        folder: Path,
        hooks: Hooks | None = None,
        apis: Sequence[Api] = APIS,
        seconds: Mapping[str, float] | None = None,
        **settings: Any,
    ) -> None:
        """Create a cloud whose operations take no time, except those in `seconds`."""
        self.clock = ManualClock()
        at_once = {"seconds": {"": 0.0, **(seconds or {})}, "arrival_seconds": 0.0}
        told = Settings(**{"enabled": EVERY_API, **at_once, **settings})
        self.cloud = Cloud(folder, apis, told, clock=self.clock, hooks=hooks)

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        self.cloud.close()

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        agent: str = "",
        principal: str = "",
        headers: dict[str, str] | None = None,
        **query: str,
    ) -> tuple[int, Any]:
        content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        sent = {"user-agent": agent, **(headers or {})}
        answer = routing.answer(self.cloud, Request(method, path, query, sent, content, principal=principal))
        if answer.headers.get("content-type", "").startswith("application/xml"):
            error = ElementTree.fromstring(answer.content)
            return answer.status, {"code": error.findtext("Code"), "message": error.findtext("Details")}
        return answer.status, json.loads(answer.content) if answer.content else None

    def ask(self, method: str, path: str, body: Any = None, **query: str) -> Any:
        status, answer = self.send(method, path, body, **query)
        assert status < 300, answer
        return answer

    def refusal(self, method: str, path: str, body: Any = None, **query: str) -> tuple[int, str, str]:
        """Return code, status (for Compute Engine and Cloud Storage the reason) and message of an error."""
        status, answer = self.send(method, path, body, **query)
        assert status >= 400, answer
        if "error" not in answer:  # XML
            return status, answer["code"], answer["message"]
        error = answer["error"]
        assert error["code"] == status
        if routing.api_of(self.cloud, path)[0].service in ("compute.googleapis.com", "storage.googleapis.com"):
            assert "status" not in error
            [inner] = error["errors"]
            assert inner == {"message": error["message"], "domain": "global", "reason": inner["reason"]}
            return status, inner["reason"], error["message"]
        assert ("errors" in error) == routing.api_of(self.cloud, path)[0].reasons_too
        return status, error["status"], error["message"]

    def pass_time(self, seconds: float) -> None:
        self.clock.sleep(seconds)
        self.cloud.settle()

    def network(self, region: str = "us-central2", pods: str = "10.64.0.0/14") -> None:
        compute = f"compute/v1/projects/{PROJECT}"
        if not self.cloud.state.get("network", f"projects/{PROJECT}/global/networks/net"):
            self.ask("POST", f"{compute}/global/networks", {"name": "net", "autoCreateSubnetworks": False})
        number = sum(not name.endswith("/default") for name in self.cloud.state.all("subnetwork"))
        self.ask(
            "POST",
            f"{compute}/regions/{region}/subnetworks",
            {
                "name": "subnet",
                "network": f"projects/{PROJECT}/global/networks/net",
                "ipCidrRange": f"10.{number}.0.0/20",
                "secondaryIpRanges": [{"rangeName": "pods", "ipCidrRange": pods}],
            },
        )

    def cluster(self, region: str = "us-central2", zone: str = "us-central2-b", pods: str = "10.64.0.0/14") -> str:
        """Create a cluster without pools and return the path of its pools."""
        self.network(region, pods)
        clusters = f"container/v1/projects/{PROJECT}/locations/{region}/clusters"
        wanted = {
            "name": "one",
            "locations": [zone],
            "initialNodeCount": 1,
            "network": f"projects/{PROJECT}/global/networks/net",
            "subnetwork": f"projects/{PROJECT}/regions/{region}/subnetworks/subnet",
            "ipAllocationPolicy": {"useIpAliases": True, "clusterSecondaryRangeName": "pods"},
            "releaseChannel": {"channel": "UNSPECIFIED"},  # pools are created without auto-upgrade
        }
        self.ask("POST", clusters, {"cluster": wanted})
        self.cloud.clock.sleep(1000)
        self.ask("DELETE", f"{clusters}/one/nodePools/default-pool")
        self.cloud.clock.sleep(1000)
        return f"{clusters}/one/nodePools"


def pool(name: str = "tpu-0", **changes: Any) -> dict[str, Any]:
    """Return a request for a v4-32 of four hosts. Changes apply to the pool, those in `config` to its config."""
    config = {"machineType": "ct4p-hightpu-4t", "diskType": "pd-balanced", **changes.pop("config", {})}
    wanted = {
        "name": name,
        "initialNodeCount": 4,
        "placementPolicy": {"type": "COMPACT", "tpuTopology": "2x2x4"},
        "config": config,
        **changes,
    }
    return {"nodePool": {key: value for key, value in wanted.items() if value is not None}}
