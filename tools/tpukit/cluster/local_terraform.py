"""The environment managed by Terraform on this machine."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console

from tpukit.cluster import (
    busy_pools,
    diagnosis,
    differences,
    expectations,
    gcloud,
    outputs,
    plan_document,
    propagation,
    protection,
    screen,
    terraform,
)
from tpukit.cluster.initialized import Initialized
from tpukit.cluster.programs import Cancelled, Command
from tpukit.cluster.screen import Screen
from tpukit.cluster.spec import ClusterSpec
from tpukit.cluster.terraform import PLAN_FILE, Terraform
from tpukit.cluster.terraform_events import Diagnostic, Event, Planned
from tpukit.cluster.terraform_progress import Progress
from tpukit.cluster.unfinished import Unfinished, import_name
from tpukit.cluster.ways import Ask
from tpukit.cluster.workspace import Workspace
from tpukit.core.clock import Clock
from tpukit.core.errors import TpukitError

T = TypeVar("T")
_POLL_SECONDS = 0.5
_ASKS_FOR_INIT = re.compile(r"\b(terraform|tofu) init\b|initialization required|plugins are not installed", re.I)
_ON_GKE = re.compile(rf"""\b(?P<kind>{busy_pools.POOL}|{busy_pools.CLUSTER})\.this(?:\["(?P<key>[^"]+)"\])?$""")


class Local:
    """A runner that plans, shows, asks, and applies the plan that was shown."""

    def __init__(
        self,
        spec: ClusterSpec,
        *,
        modules: Path,
        state: str,
        context: str,
        evict: bool,
        wait: bool,
        clock: Clock,
        console: Console,
    ) -> None:
        self._spec, self._evict, self._context = spec, evict, context
        self._clock, self._console = clock, console
        self._wait = wait
        self._agreed: set[tuple[str, str]] = set()
        self._errors: list[Diagnostic] = []  # of the last run
        self._workspace = Workspace.of(spec, modules, state)
        self._terraform = Terraform(terraform.program(), self._workspace.folder)

    def lines(self, verb: str) -> list[str]:
        """Return the command lines of `verb`."""
        run = self._terraform
        lines = ["# tpu copies the Terraform files by itself; by hand that is", *self._workspace.lines()]
        lines.append(str(run.init(self._backend())))
        if verb == "status":
            return [*lines, str(run.state_list())]
        lines += [str(run.plan(self._spec.variables(), destroy=verb == "destroy")), str(run.show())]
        if verb == "plan":
            return lines
        if not self._evict:
            lines += ["# if a pool would go", *map(str, busy_pools.questions(self._context))]
        if verb == "destroy":
            lines += protection.lines(self._spec)
        if verb == "apply":
            lines += expectations.lines(self._spec)
        return [*lines, str(run.apply())]

    def plan(self) -> list[Planned]:
        with self._alone():
            try:
                planned = self._plan(destroy=False)[0].planned
                self._say(expectations.addresses(self._spec))
                return planned
            finally:
                self._forget()

    def apply(self, ask: Ask) -> bool:
        return propagation.patiently(lambda: self._change("apply", ask), self._spec, self._clock, self._say)

    def destroy(self, ask: Ask) -> bool:
        try:
            return self._change("destroy", ask)
        except Cancelled:
            raise
        except TpukitError as error:
            # In a network that existed before, the rules may belong to other clusters.
            ours = self._spec.create_network and "google_compute_network" in str(error)
            if not ours or not self._sweep():
                raise
        self._console.print("GKE left firewall rules behind. They are deleted now; retrying:")
        # The user has already agreed to all of it.
        return self._change("destroy", lambda question: True)

    def resources(self) -> list[str]:
        with self._alone():
            run = self._terraform
            return self._initialized(lambda: run.read(run.state_list(), "reading the state")).split("\n")[:-1]

    def outputs(self) -> dict[str, Any]:
        with self._alone():
            run = self._terraform
            return outputs.values(json.loads(self._initialized(lambda: run.read(run.output(), "reading the outputs"))))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        waiting = False

        def wait() -> None:
            nonlocal waiting
            if not waiting:
                self._console.print("waiting for the Terraform of another `tpu cluster` on this machine")
            waiting = True
            self._clock.sleep(_POLL_SECONDS)

        with self._workspace.alone(wait if self._wait else None) as lock:
            self._terraform = replace(self._terraform, inherit=(lock,))
            yield

    def _change(self, verb: str, ask: Ask) -> bool:
        with self._alone():
            try:
                progress, plan = self._plan(destroy=verb == "destroy")
                if not progress.planned and not plan_document.outputs_change(plan):
                    self._console.print("Nothing to change.")
                    return False
                if verb == "destroy":
                    protection.check(self._spec, plan)
                going = busy_pools.Doomed() if self._evict else busy_pools.doomed(plan)
                busy_pools.check(going, self._context)
                if verb == "apply":
                    expectations.show(self._spec, progress.planned, self._say)
                wanted = {(one.address, one.action) for one in progress.planned}
                # The rest of a plan that the user agreed to needs no second confirmation.
                if not wanted or not wanted <= self._agreed:
                    if not ask(screen.question(verb, self._spec.cluster_name, progress)):
                        return False
                    self._agreed = wanted
                busy_pools.check(going, self._context)  # a job may have been submitted while the user read the plan
                if self._make(verb, plan):
                    return True
            finally:
                self._forget()
        return self._change(verb, ask)  # with what was imported

    def _make(self, verb: str, plan: dict[str, Any]) -> bool:
        """Apply the plan. Return False if resources of an interrupted run were imported: a new plan is then needed."""
        begun = Unfinished(self._workspace.folder)
        title = "Applying" if verb == "apply" else "Destroying"
        try:
            self._run(self._terraform.apply(), title, verb, watch=begun.feed)
        except TpukitError as error:
            ours = begun.ended(self._errors)
            names = {one.address: import_name(one, plan, self._spec.project_id) for one in ours}
            known = {address: name for address, name in names.items() if name}
            if isinstance(error, Cancelled) or verb != "apply" or not known:
                raise
            for address, name in known.items():
                self._say(f"{address}: created by an interrupted run; importing {name}")
                order = self._terraform.adopt(self._spec.variables(), address, name)
                self._terraform.read(order, f"importing {address}")
                begun.taken_in(address)
            return False
        begun.ended(())
        return True

    def _initialized(self, work: Callable[[], T]) -> T:
        """Return the result of `work`, after running `terraform init` if needed."""
        self._workspace.prepare()
        order = self._terraform.init(self._backend())
        mark = Initialized(self._workspace.folder, self._terraform.program, order)
        if mark.holds():
            try:
                return work()
            except Cancelled:
                raise
            except TpukitError as error:
                # Providers may have been deleted from the cache they are linked from: Terraform then asks for `init`.
                if not _ASKS_FOR_INIT.search(str(error)):
                    raise
                mark.forget()
        terraform.check(self._terraform.program)
        # Its output is not useful, but fetching providers may take a while.
        self._run(order, "Preparing", "init", quiet=True)
        mark.note()
        return work()

    def _plan(self, *, destroy: bool) -> tuple[Progress, dict[str, Any]]:
        order = self._terraform.plan(self._spec.variables(), destroy=destroy)
        progress = self._initialized(lambda: self._run(order, "Planning", "plan"))
        plan: dict[str, Any] = json.loads(self._terraform.read(self._terraform.show(), "reading the plan"))
        screen.show_plan(progress, self._console, differences.by_address(plan))
        return progress, plan

    def _run(
        self,
        command: Command,
        title: str,
        verb: str,
        *,
        quiet: bool = False,
        watch: Callable[[Event], None] | None = None,
    ) -> Progress:
        with Screen(title, self._clock, self._console) as shown:

            def feed(event: Event) -> None:
                if watch:
                    watch(event)
                if not quiet:
                    shown.feed(event)

            try:
                done = self._terraform.run(command, verb, on_event=feed, on_leave=shown.leave, hint=self._hint)
            finally:
                self._errors = shown.progress.errors()
        progress = shown.progress
        if done.presses and done.code:
            finished, total = progress.count("done"), len(progress.rows)
            trouble = "".join(f"\n  {one.address or one.where}: {one.summary}" for one in progress.errors()[:5])
            raise Cancelled(
                f"{verb} was cancelled: {finished} of {total} done, and the state is saved{trouble}",
                hint=f"`tpu cluster {verb}` again continues from there",
            )
        return progress

    def _hint(self, found: Diagnostic) -> str:
        """Return the hint to import a pool or cluster that GKE has and the state lacks, or "" for other errors."""
        place = _ON_GKE.search(found.address)
        if not place or not diagnosis.already_there(found):
            return ""
        parts = [self._spec.project_id, self._spec.region, self._spec.cluster_name]
        if place["kind"] == busy_pools.POOL:
            parts.append(place["key"] or "cpu-pool")
        line = self._terraform.adopt(self._spec.variables(), found.address, "/".join(parts))
        return (
            "GKE has it and Terraform's state does not: an earlier apply lost its connection, or another tool created "
            f"it. Import it, then apply again:\n  {line}"
        )

    def _backend(self) -> dict[str, str]:
        if not self._workspace.backend:
            return {}
        return {"bucket": self._spec.state_bucket, "prefix": self._spec.state_prefix}

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _forget(self) -> None:
        (self._workspace.folder / PLAN_FILE).unlink(missing_ok=True)

    def _sweep(self) -> bool:
        """Delete firewall rules left by GKE, which block the network's deletion. Return whether there were any."""
        project = self._spec.project_id
        rules = gcloud.read(rules_of_gke(project, self._spec.network_name), "looking for firewall rules").split()
        if rules:
            order = gcloud.command("compute", "firewall-rules", "delete", *rules, f"--project={project}")
            gcloud.read(order, "deleting firewall rules")
        return bool(rules)


def rules_of_gke(project: str, network: str) -> Command:
    # Without quotes, gcloud interprets the parentheses itself and refuses the filter.
    pattern = f'network ~ "/{network}$" AND name ~ "^(gke|k8s)-"'
    words = (f"--project={project}", f"--filter={pattern}", "--format=value(name)")
    return gcloud.command("compute", "firewall-rules", "list", *words)
