"""Set up a project, from empty to a cluster that accepts jobs.

Every step can be repeated and does nothing if nothing is missing: the same command continues wherever it was
interrupted, and needs no record of its progress.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tpukit.cluster import addons, bootstrap, diagnosis, gcloud, images, outputs, programs, running_costs
from tpukit.cluster.programs import Cancelled, Command
from tpukit.cluster.spec import ClusterSpec
from tpukit.cluster.ways import Ask, Say, Way
from tpukit.core.clock import Clock
from tpukit.jobs.spec import settings

_QUEUE_WAIT = "--timeout=5m"


@dataclass(frozen=True, slots=True)
class Step:
    title: str
    run: Callable[[], None]
    lines: Callable[[], Sequence[str]]


class Up:
    """The steps for one cluster, in order."""

    def __init__(
        self,
        spec: ClusterSpec,
        way: Way,
        context: str,
        *,
        members: Sequence[str] = (),
        ask: Ask,
        clock: Clock,
        say: Say,
        agreed: bool = False,
    ) -> None:
        """Prepare the steps. `agreed`: the user has agreed to all of it (`--yes`)."""
        self._spec, self._way, self._context, self._members = spec, way, context, members
        self._ask, self._clock, self._say = ask, clock, say
        self._agreed = agreed
        self._outputs: Mapping[str, Any] = {}

    def steps(self) -> list[Step]:
        spec, context = self._spec, self._context
        return [
            Step(
                "the project: APIs, buckets and accounts",
                lambda: bootstrap.run(spec, self._clock, self._say),
                lambda: bootstrap.lines(spec),
            ),
            Step("the cluster and its slices", self._apply, lambda: self._way.lines("apply")),
            # Before the long steps: the grant may take minutes to propagate, and users may push an image right after.
            Step("who may push images", self._images, lambda: ["# with the repository that Terraform made"]),
            Step("credentials for kubectl", self._credentials, lambda: [str(gcloud.get_credentials(spec))]),
            Step(
                "JobSet, Kueue and the queues",
                lambda: addons.run(spec, context, self._clock, self._say),
                lambda: addons.lines(spec, context),
            ),
            Step(f"team {spec.tpu_namespace}", self._team, lambda: [str(self._queue())]),
            Step(f"settings in {settings.path()}", self._settings, lambda: []),
        ]

    def run(self) -> None:
        self._ask_first()
        steps = self.steps()
        for number, step in enumerate(steps, 1):
            self._say(f"[{number}/{len(steps)}] {step.title}")
            step.run()

    def next(self) -> list[str]:
        """Return the next commands to type. `verify` needs an image with tpukit and JAX."""
        mine = settings.load()
        built = mine.image and mine.repository and mine.image.startswith(f"{mine.repository}/")
        last = "tpu run job.yaml --place gke"
        return ["tpu cluster verify", last] if built else ["tpu image push", "tpu cluster verify", last]

    def _ask_first(self) -> None:
        """Ask before anything is created in the project."""
        if self._agreed or not (lacking := bootstrap.missing(self._spec)):
            return
        for line in running_costs.lines(running_costs.estimate(self._spec)):
            self._say(line)
        made = "".join(f"\n  {title}" for title in lacking)
        self._say(
            f"The project {self._spec.project_id} lacks:{made}\nThe cluster plan follows, with a second question."
        )
        if not self._ask(f"Enable the APIs and create these in {self._spec.project_id}?"):
            raise Cancelled("nothing was created", hint="`tpu cluster up` asks again")

    def _apply(self) -> None:
        refused = False

        def ask(question: str) -> bool:
            nonlocal refused
            agreed = self._ask(question)
            refused = not agreed
            return agreed

        self._way.apply(ask)
        if refused:
            raise Cancelled("nothing was created", hint="`tpu cluster up` shows it again and asks again")
        self._outputs = self._way.outputs()

    def _credentials(self) -> None:
        gcloud.follow(gcloud.get_credentials(self._spec), "getting credentials", self._say)

    def _images(self) -> None:
        order = images.pushers(images.Repository(str(self._outputs["image_repository"])))
        gcloud.change_policy(order, "letting builds push images", self._clock)
        self._say(f"{bootstrap.IMAGE_ACCOUNT} pushes to {self._outputs['image_repository']}")

    def _team(self) -> None:
        done = programs.run(self._queue())
        if done.code:
            raise diagnosis.failure("kubectl", done.errors, f"waiting for the queue of {self._spec.tpu_namespace}")
        if self._members:
            self._add_members()
        self._say(f"{self._spec.tpu_namespace} may send jobs")

    def _add_members(self) -> None:
        from tpukit.kube import Cluster
        from tpukit.teams import registry
        from tpukit.teams.team import request

        cluster, account = Cluster(context=self._context), self._spec.tpu_sa_name
        change = registry.plan(cluster, request(self._spec.tpu_namespace, members=self._members), account)
        registry.apply(cluster, change, account, self._clock, self._say)

    def _queue(self) -> Command:
        team = self._spec.tpu_namespace
        return programs.command(
            *("kubectl", f"--context={self._context}", "wait", f"--namespace={team}", f"localqueue/{team}"),
            *("--for=condition=Active", _QUEUE_WAIT),
        )

    def _settings(self) -> None:
        made = {**outputs.settings_from(self._outputs), "context": self._context}
        for name, value in settings.save(made).items():
            self._say(f"{name}: {value}")


def lines(up: Up) -> list[str]:
    """Return every command line of `up`, for a dry run."""
    return [line for step in up.steps() for line in (f"# {step.title}", *step.lines())]
