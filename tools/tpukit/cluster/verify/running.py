"""Run the jobs of a verification through the use cases of jobs, and collect what their hosts print."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tpukit.catalogue import Slice
from tpukit.cluster.verify import checks, evidence, targets
from tpukit.cluster.verify.checks import Result
from tpukit.cluster.verify.evidence import Evidence, Heard
from tpukit.cluster.verify.targets import Job
from tpukit.core.errors import Denied, NotFound, TpukitError, Transient
from tpukit.core.quantities import counted
from tpukit.jobs import plan as planning
from tpukit.jobs.plan import Plan
from tpukit.jobs.reasons import Reason
from tpukit.jobs.records import Job as Record
from tpukit.jobs.render import PoolKind
from tpukit.jobs.render import jobset as manifest
from tpukit.jobs.render.kueue import ACCESS
from tpukit.jobs.spec import JobSpec, Settings
from tpukit.jobs.use_cases import logs, requests, submission
from tpukit.jobs.use_cases.session import Session
from tpukit.kube import Cluster
from tpukit.places.gke import GkePlace
from tpukit.places.gke.jobsets import NAME

GRACE_SECONDS = 30
POLL_SECONDS = 0.5
LEAVE_SECONDS = 60.0
"""Longest wait for lines about SIGTERM: the grace of the jobs, and time for their deletion to reach the nodes."""
_DECIDED = {Reason.BAD_IMAGE: "image", Reason.CHIPS_DENIED: "chips"}
"""Reasons for the end of a job that decide a check."""
_NO_POOLS = "`tpu cluster apply --set num_tpu_pools=1` creates one"


@dataclass(frozen=True, slots=True)
class Request:
    settings: Settings
    team: str
    image: str  # empty: that of the settings
    seconds: float  # for each round of jobs
    access: str  # access of the hosts to their chips


def access_of(cluster: Cluster, team: str) -> str:
    """Return the access to chips that the team allows its pods. Without the right to read it, assume the default."""
    try:
        labels = cluster.get("Namespace", team)["metadata"].get("labels", {})
    except Denied:
        return "restricted"
    except NotFound as error:
        hint = f"`tpu team add {team}` makes it, `tpu team list` shows those that there are"
        raise NotFound(f"there is no team {team} in this cluster", hint=hint) from error
    return str(labels.get(ACCESS, "restricted"))


def spec_of(job: Job, request: Request) -> JobSpec:
    shape, seconds = job.target.shape, int(request.seconds)
    tpu = {"generation": shape.generation, "topology": shape.topology, "machine_type": shape.machine_type}
    probe = ["python", "-m", "tpukit.host.probe", f"--devices-per-chip={shape.devices_per_chip}", f"--hold={seconds}"]
    limits = {"runtime": f"{seconds}s", "stall": f"{seconds}s", "grace": f"{GRACE_SECONDS}s"}
    fields: dict[str, Any] = {
        "name": "verify",
        "tpu": tpu,
        "slices": job.target.slices,
        "command": probe,
        "team": request.team,
        "capacity": targets.capacity(job.capacity),
        "rule": "pass",
        "access": request.access,
        "max": limits,
        "tags": ["verify"],
    }
    return JobSpec.from_json({**fields, **({"image": request.image} if request.image else {})})


class Round:
    """Jobs that hold their slices at the same time."""

    def __init__(self, session: Session, cluster: Cluster, request: Request, say: Callable[[str], None]) -> None:
        self._session, self._cluster, self._request, self._say = session, cluster, request, say
        self._driver = session.driver()

    def run(self, jobs: Sequence[Job]) -> list[Result]:
        results: list[Result] = []
        sent: list[_Sent] = []
        try:
            for job in jobs:
                try:
                    sent.append(self._send(job))
                except TpukitError as error:
                    results += checks.judge(job.target, [], job.hosts, f"the job was refused: {_line(error)}")
            self._wait(sent)
        finally:
            for one in sent:
                one.stop()
            self._wait_until_left(sent)
        return results + self._judge(sent)

    def _send(self, job: Job) -> _Sent:
        made = planning.make(spec_of(job, self._request), self._request.settings, GkePlace.name)
        made = submission.record(self._session, submission.settle(self._session, made))
        slices = f"{job.target.slices} × " if job.target.slices > 1 else ""
        self._say(f"{made.id} measures {slices}{PoolKind(job.target.shape, job.capacity)}")
        return _Sent(self._session, self._cluster, job, made)

    def _wait(self, sent: Sequence[_Sent]) -> None:
        clock = self._session.clock
        due = clock.monotonic() + self._request.seconds
        while clock.monotonic() < due:
            self._look(sent)
            if all(one.reported or one.ended for one in sent):
                return
            clock.sleep(POLL_SECONDS)

    def _wait_until_left(self, sent: Sequence[_Sent]) -> None:
        """Wait for the lines about SIGTERM and for the end of the jobs. Their slices are free then."""
        clock = self._session.clock
        due = clock.monotonic() + LEAVE_SECONDS
        while clock.monotonic() < due and not all(one.has_left for one in sent):
            self._look(sent)
            clock.sleep(POLL_SECONDS)
        self._driver.close()
        if active := [one.id for one in sent if not one.ended]:
            requests.wait_for_ends(self._session, active)

    def _look(self, sent: Sequence[_Sent]) -> None:
        """Drive the jobs one round, and read what is new of them. What cannot be reached now is read later."""
        with suppress(Transient):
            if active := [one.id for one in sent if not one.ended]:
                self._driver.round(active)
        for one in sent:
            with suppress(TpukitError):
                one.look()

    def _judge(self, sent: Sequence[_Sent]) -> list[Result]:
        found = [one.evidence() for one in sent]
        nodes = self._cluster.list("Node") if sent else []
        seen = [targets.ran_on(nodes, evidence.nodes(one.pods)) for one in found]
        return [
            result
            for one, job, known in zip(sent, targets.located([one.job for one in sent], seen), found, strict=True)
            for result in checks.judge(job.target, evidence.samples(one.id, known), job.hosts, known.why)
        ]


class _Sent:
    """A recorded job, and a thread that reads its log."""

    def __init__(self, session: Session, cluster: Cluster, job: Job, plan: Plan) -> None:
        self.job, self.id = job, plan.id
        self._session, self._cluster, self._team = session, cluster, plan.team
        self._lock = threading.Lock()
        self._heard: list[Heard] = []
        self._reader: threading.Thread | None = None
        self._pods: dict[str, Mapping[str, Any]] = {}  # by uid, as last seen
        self._record: Record = session.get(plan.id)
        self._asked: float | None = None
        self._before = self._record  # its record when it was stopped

    @property
    def ended(self) -> bool:
        return self._record.state.ended

    @property
    def reported(self) -> bool:
        return len(evidence.complete(self._lines())) >= self.job.hosts

    @property
    def has_left(self) -> bool:
        """Return whether nothing more is to be heard of it."""
        lines, reader = self._lines(), self._reader
        all_told = evidence.left(lines) >= evidence.complete(lines)
        return self.ended and (all_told or reader is None or not reader.is_alive())

    def look(self) -> None:
        self._record = self._session.get(self.id)
        if self._reader is None and self._record.attempts:
            self._reader = threading.Thread(target=self._read, name=f"log of {self.id}", daemon=True)
            self._reader.start()
        for pod in self._cluster.list("Pod", self._team, labels=f"{NAME}={self.id}"):
            self._pods[pod["metadata"]["uid"]] = pod

    def stop(self) -> None:
        self._before = self._record
        self._asked = self._session.clock.now() if self.reported else None
        with suppress(Transient):  # waiting for its end reports it
            requests.stop(self._session, self.id)

    def evidence(self) -> Evidence:
        """Return everything that was seen of it, once it has ended."""
        if not self.reported or evidence.left(self._lines()) < evidence.complete(self._lines()):
            self._read(follow=False)
        lines, pods = self._lines(), tuple(self._pods.values())
        if self.reported:
            return Evidence(lines, pods, self._asked)
        before = self._before
        words = ": ".join(filter(None, (before.reason, before.message)))
        if not before.state.ended:
            return Evidence(lines, pods, self._asked, f"no report in time; {words or before.state}")
        decided = _DECIDED.get(before.reason) if before.reason else None
        return Evidence(lines, pods, self._asked, f"the job ended: {words}", {decided: words} if decided else {})

    def _lines(self) -> list[Heard]:
        with self._lock:
            return list(self._heard)

    def _read(self, *, follow: bool = True) -> None:
        with suppress(TpukitError):  # what was not read was not seen
            for line in logs.of_job(self._session, self._record, follow=follow):
                heard = evidence.parse(line.text, self._session.clock.now())
                if heard is None:
                    continue
                with self._lock:
                    if all(heard.document != known.document for known in self._heard):
                        self._heard.append(heard)


def run(
    session: Session,
    cluster: Cluster,
    request: Request,
    network: Callable[[Slice], checks.Network],
    say: Callable[[str], None],
    *,
    pool: str = "",
) -> list[Result]:
    """Verify all pools, or one of them, and return the results.

    Raises:
        Invalid: No job can be sent as the request and the settings are.
        NotFound: There are no slices, or there is no pool of this name.
    """
    pools = targets.pools(cluster.list("Node"))
    if pool and all(one.name != pool for one in pools):
        known = ", ".join(one.name for one in pools)
        raise NotFound(f"there is no pool {pool} of TPU slices", hint=f"there are {known}" if known else _NO_POOLS)
    if not pools:
        raise NotFound("the cluster has no TPU slices now", hint=_NO_POOLS)
    chosen = targets.alike(pools, pool) if pool else pools
    first = targets.job_of(chosen[0], network)
    manifest.check(planning.make(spec_of(first, request), request.settings, GkePlace.name))
    results = [
        result
        for one in chosen
        if not one.whole
        for result in checks.judge(
            targets.job_of(one, network).target,
            [],
            one.kind.shape.hosts,
            f"{one.ready} of {counted(one.kind.shape.hosts, 'host')} {'is' if one.ready == 1 else 'are'} ready",
        )
    ]
    results += Round(session, cluster, request, say).run(targets.of_each(chosen, network))
    results.sort(key=lambda one: one.target)  # keeps the order of the checks
    if pool:
        return [one for one in results if one.target == pool]
    if two := targets.of_two(chosen, network):
        return results + Round(session, cluster, request, say).run(two)
    say("no two slices of one kind have several hosts, so nothing between slices is verified")
    return results


def _line(error: TpukitError) -> str:
    return " ".join(error.message.split())
