"""The modules from Python: a construct for cdktn, the maintained continuation of cdktf, or for cdktf itself.

    from cdktn import App
    from tpukit.cluster import cdk; from tpukit.cluster import spec

    app = App()
    cdk.TrainingStack(app, "training", spec.load(Path("cluster.yaml")))
    app.synth()

Needs the extra `cdk`, and Node, which runs the library. The calls, and so the addresses in the state, are those of the
root module, so you can switch between the two.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from tpukit.cluster.calls import calls
from tpukit.cluster.spec import ClusterSpec
from tpukit.core import resources
from tpukit.core.errors import NotFound


def _library() -> Any:
    for name in ("cdktn", "cdktf"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise NotFound("neither cdktn nor cdktf is installed", hint=resources.install_hint("cdk"))


_cdk = _library()
_constructs = importlib.import_module("constructs")


class TrainingEnvironment(_constructs.Construct):  # type: ignore[misc, name-defined]
    """The modules of the root module, called as it calls them.

    `modules` is a folder, or a source as Terraform takes it, in place of the modules that came with tpukit. `prefix`
    keeps the names of two environments in one stack apart. `calls` has the modules by name, to build on.
    """

    def __init__(
        self, scope: Any, name: str, spec: ClusterSpec, *, modules: str | Path | None = None, prefix: str = ""
    ) -> None:
        super().__init__(scope, name)
        source = str(modules or resources.folder("terraform") / "modules")
        self.calls = {call: self._call(call, words) for call, words in calls(spec, source, prefix).items()}

    def _call(self, name: str, words: dict[str, Any]) -> Any:
        source, count = words.pop("source"), words.pop("count", None)
        module = _cdk.TerraformHclModule(
            self, name, source=source, variables=words, skip_asset_creation_from_local_modules=True
        )
        # Otherwise the library derives the name from the construct tree, and the state would not match the root module.
        module.override_logical_id(name)
        if count is not None:
            module.add_override("count", count)
        return module


class TrainingStack(_cdk.TerraformStack):  # type: ignore[misc, name-defined]
    """A stack with one environment, its provider, and its state in Cloud Storage."""

    def __init__(self, scope: Any, name: str, spec: ClusterSpec, *, modules: str | Path | None = None) -> None:
        super().__init__(scope, name)
        _cdk.GcsBackend(self, bucket=spec.state_bucket, prefix=spec.state_prefix)
        self.add_override("provider.google", [{"project": spec.project_id, "region": spec.region}])
        self.environment = TrainingEnvironment(self, "environment", spec, modules=modules)
