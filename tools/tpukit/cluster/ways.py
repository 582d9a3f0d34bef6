"""Runners of Terraform with one interface: this machine, Cloud Build, Infrastructure Manager."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tpukit.cluster.spec import ClusterSpec
from tpukit.cluster.terraform_events import Planned
from tpukit.core import resources
from tpukit.core.clock import Clock

if TYPE_CHECKING:
    from rich.console import Console

NAMES = ("local", "cloud-build", "infra-manager")

Ask = Callable[[str], bool]
"""A function that asks the user and returns whether they agree."""
Say = Callable[[str], None]


class Way(Protocol):
    def lines(self, verb: str) -> list[str]:
        """Return the command lines that plan, apply, destroy or status runs, for a shell."""

    def plan(self) -> Sequence[Planned]:
        """Show what would be done, and return what is known of it here."""

    def apply(self, ask: Ask) -> bool:
        """Apply, and return whether it was done: there may be nothing to do, or the user may decline."""

    def destroy(self, ask: Ask) -> bool: ...

    def resources(self) -> list[str]:
        """Return the addresses of all resources in the state."""

    def outputs(self) -> dict[str, Any]:
        """Return the modules' outputs, by name."""


@dataclass(frozen=True, slots=True)
class Options:
    via: str = "local"
    state: str = "gcs"  # or local, for rehearsals
    modules: Path | None = None  # Terraform files in place of ours
    source: Path | None = None  # checkout that a build takes
    context: str = ""  # of the kubeconfig
    evict: bool = False  # whether to delete pools even while they run jobs
    wait: bool = False  # for another run on this machine, instead of refusing


def make(spec: ClusterSpec, options: Options, clock: Clock, console: Console, say: Say) -> Way:
    packaged = resources.folder("terraform")
    modules = (options.modules or packaged).absolute()
    context = options.context or spec.context
    if options.via == "cloud-build":
        from tpukit.cluster.cloud_build import CloudBuild

        # The build files are next to the Terraform folder in a checkout, and not in an installed package.
        source = options.source or packaged.parent
        return CloudBuild(spec, source=source, context=context, evict=options.evict, say=say)
    if options.via == "infra-manager":
        from tpukit.cluster.infra_manager import InfraManager

        return InfraManager(spec, modules=modules, context=context, evict=options.evict, say=say, console=console)
    from tpukit.cluster.local_terraform import Local

    return Local(
        spec,
        modules=modules,
        state=options.state,
        context=context,
        evict=options.evict,
        wait=options.wait,
        clock=clock,
        console=console,
    )
