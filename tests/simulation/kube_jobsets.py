"""JobSet and Kueue in a simulated cluster, in simulated time, with the ground truth of each run.

JobSets queue, run, are restarted, evicted and deleted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from simulation.kube import TEAM, Doc, Documents, Key, condition, true
from tpukit.core.errors import Denied
from tpukit.jobs.plan import ATTEMPT
from tpukit.places.gke.jobsets import NAME, REPLICATED_JOB, RESTART, SENDER, UID
from tpukit.teams.boosts import BOOST, MOST

if TYPE_CHECKING:
    from simulation.plans import JobPlan
    from simulation.world import World

SAVE_SECONDS = 60.0
CODES = {"preempted": 143, "peerLost": 134, "userError": 1}
INDEX, JOB_NAME = "batch.kubernetes.io/job-completion-index", "batch.kubernetes.io/job-name"


@dataclass
class Run:
    """All pods of a JobSet between two restarts or admissions, once the program has begun on all of them."""

    job: str
    number: int  # of the attempt
    uid: str
    began: float
    alive: bool = True
    broken: float = math.inf  # when it was ended; its pods may take a while to leave
    cause: str = ""  # done mistake preempted peerLost evicted deleted


@dataclass
class Runs:
    """The ground truth for the invariants."""

    every: list[Run] = field(default_factory=list)
    began: dict[tuple[str, int], Run] = field(default_factory=dict)

    def advance(self) -> None: ...

    def healthy(self, run: Run) -> bool:
        return run.alive and run.broken == math.inf

    def of_job(self, job: str) -> list[Run]:
        return [one for one in self.every if one.job == job and one.alive]


class JobSets(Documents):
    """JobSets of a cluster with unlimited nodes: each pod gets its own soon after its admission."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.runs = Runs()
        self.programs: dict[str, JobPlan] = {}  # by job
        self.run: dict[str, Run] = {}  # the last one of each JobSet, by uid
        self.phase: dict[str, str] = {}  # by uid: queued starting running restarting evicting leaving finished
        self.saved: dict[str, float] = {}  # seconds of work that are saved, by job
        self.foreign: set[str] = set()  # uids of JobSets that other stores or people created
        self.orphans = False  # JobSets without a job exist
        self.closed = 0.0  # until when Kueue admits no workload
        self._turn: dict[str, int] = {}
        self.add("LocalQueue", (TEAM, TEAM), {"metadata": {"name": TEAM}, "spec": {"clusterQueue": TEAM}})
        for name in ("low", "medium", "high"):
            self.add("WorkloadPriorityClass", ("", name), {"metadata": {"name": name}})

    # API

    def created(self, kind: str, key: Key) -> None:
        if kind != "JobSet":
            return
        self._judge_create(key)
        doc = self.edit(kind, key)
        doc["spec"]["suspend"], doc["status"] = True, {"conditions": []}
        uid, name = doc["metadata"]["uid"], f"jobset-{key[1]}"
        metadata = {"name": name, "ownerReferences": [{"kind": "JobSet", "name": key[1], "uid": uid}]}
        spec = {"podSets": [], "queueName": key[0]}
        self.add("Workload", (key[0], name), {"metadata": metadata, "spec": spec, "status": {"conditions": []}})
        self._step(uid, "queued", self.dice.uniform(1, 20), self._admit)

    def _judge_create(self, key: Key) -> None:
        """Check that no driver creates a JobSet for a job that another driver has ended."""
        job = self.world.store._known.get(key[1])
        annotations = self.of("JobSet")[key]["metadata"].get("annotations") or {}
        if job is not None and job.state.ended and annotations.get(SENDER) == self.world.home.sender:
            self.world.violate("stale", f"creates JobSet {key[1]}, whose job is {job.state}")

    def deleted(self, kind: str, key: Key, *, foreground: bool) -> None:
        if kind != "JobSet":
            if kind == "Pod" and key in self.of("Pod"):  # only its grace is shortened: its JobSet is leaving
                return
            super().deleted(kind, key, foreground=foreground)
            return
        uid = self.of(kind)[key]["metadata"]["uid"]
        if self.phase[uid] == "leaving":
            return
        run = self.run.get(uid)
        if uid in self.foreign:
            self.world.violate("foreign", f"deletes JobSet {key[1]} of another store")
        elif run is not None:
            self.world.check_end(run, f"deletes JobSet {key[1]}")  # type: ignore[arg-type]
        self.remove(key, foreground=foreground)

    def remove(self, key: Key, *, foreground: bool) -> None:
        """Delete a JobSet for any caller."""
        doc = self.edit("JobSet", key)
        uid = doc["metadata"]["uid"]
        doc["metadata"]["deletionTimestamp"] = self.time()
        self._break(uid, "deleted")
        self._tell_pods(uid)
        self._step(uid, "leaving", self.dice.uniform(1, 30), self._vanish)
        if not foreground:
            self._drop_jobset(key)

    # Kueue

    def admit_change(self, kind: str, key: Key, change: Mapping[str, Any]) -> None:
        """Refuse a boost that is no number, as Kueue does; find one on a job that waits, or that crosses a class."""
        boost = ((change.get("metadata") or {}).get("annotations") or {}).get(BOOST)
        if kind != "Workload" or boost is None:
            return
        if not boost.isdigit():
            raise Denied(f"the webhook denied the request: metadata.annotations[{BOOST}]: Invalid value")
        workload = self.of(kind)[key]
        if not true(workload, "Admitted") or true(workload, "Evicted"):
            self.world.violate("boost", f"boosts {key[1]}, which waits")
        if not 0 <= int(boost) < MOST:
            self.world.violate("boost", f"boosts {key[1]} by {boost}, beyond its class")

    def _admit(self, key: Key) -> None:
        uid = self._uid(key)
        if self.closed > self.world.scheduler.now:
            self._step(uid, "queued", self.closed - self.world.scheduler.now + self.dice.uniform(0, 5), self._admit)
            return
        workload = self.edit("Workload", (key[0], f"jobset-{key[1]}"))
        condition(workload, "Admitted", True, self.time())
        condition(workload, "Evicted", False, self.time())
        doc = self.edit("JobSet", key)
        doc["spec"]["suspend"] = False
        condition(doc, "Suspended", False, self.time())
        self._make_pods(key)

    def evict(self, key: Key, away: float = 0.0) -> None:
        uid = self._uid(key)
        if self.phase[uid] not in ("starting", "running"):
            return
        workload = self.edit("Workload", (key[0], f"jobset-{key[1]}"))
        stats = workload["status"].setdefault("schedulingStats", {}).setdefault("evictions", [])
        if not stats:
            stats.append({"reason": "Preempted", "underlyingCause": "", "count": 0})
        stats[0]["count"] += 1
        condition(workload, "Evicted", True, self.time(), "Preempted")
        doc = self.edit("JobSet", key)
        doc["spec"]["suspend"] = True
        condition(doc, "Suspended", True, self.time())
        self._break(uid, "evicted")
        self._tell_pods(uid)
        self._step(uid, "evicting", self.dice.uniform(1, 30), lambda key: self._evicted(key, away))

    def _evicted(self, key: Key, away: float) -> None:
        self._drop_pods(self._uid(key))
        condition(self.edit("Workload", (key[0], f"jobset-{key[1]}")), "Admitted", False, self.time())
        self._step(self._uid(key), "queued", away or self.dice.uniform(5, 60), self._admit)

    # JobSet

    def fail(self, key: Key, how: str, cause: str = "") -> None:
        """Fail a job as `how` (preempted | peerLost | userError); JobSet then applies its rules."""
        uid = self._uid(key)
        if self.phase[uid] != "running":
            return
        pods = self._pods_of(uid)
        culprit = self.dice.randrange(len(pods))
        for index, pod in enumerate(pods):
            code = CODES[how] if index == culprit or how != "userError" else 134
            ended = {"exitCode": code, "reason": "Error", "finishedAt": self.time()}
            doc = self.edit("Pod", pod)
            doc["status"] |= {"phase": "Failed", "containerStatuses": _ended(ended)}
            if index == culprit and how == "preempted":
                condition(doc, "DisruptionTarget", True, self.time(), "TerminationByKubelet")
        self._break(uid, cause or how)
        self._over(uid)
        doc = self.edit("JobSet", key)
        policy, status = doc["spec"]["failurePolicy"], doc["status"]
        action = next(rule["action"] for rule in policy["rules"] if rule["name"] == how)
        counted = status.get("restartsCountTowardsMax", 0)
        if action == "FailJobSet" or (action == "RestartJobSet" and counted >= policy["maxRestarts"]):
            self._finish(key, "Failed", "FailedJobs")
            return
        status["restarts"] = status.get("restarts", 0) + 1
        if action == "RestartJobSet":
            status["restartsCountTowardsMax"] = counted + 1
        condition(doc, "RestartingJobSet", True, self.time(), f"FailurePolicy_{how}")
        self._tell_pods(uid)
        self._step(uid, "restarting", self.dice.uniform(1, 30), self._restart)

    def _restart(self, key: Key) -> None:
        self._drop_pods(self._uid(key))
        self._make_pods(key)

    def _make_pods(self, key: Key) -> None:
        doc = self.of("JobSet")[key]
        uid, spec = doc["metadata"]["uid"], doc["spec"]["replicatedJobs"][0]
        template = spec["template"]["spec"]
        hosts = int(template["parallelism"])
        for index in range(spec["replicas"]):
            for host in range(hosts):
                labels = {
                    NAME: key[1],
                    UID: uid,
                    RESTART: str(doc["status"].get("restarts", 0)),
                    REPLICATED_JOB: spec["name"],
                    INDEX: str(host),
                    JOB_NAME: f"{key[1]}-{spec['name']}-{index}",
                }
                name = f"{labels[JOB_NAME]}-{host}-{next(self._numbers):05}"
                pod = {"metadata": {"name": name, "labels": labels}, "spec": dict(template["template"]["spec"])}
                self.add("Pod", (key[0], name), {**pod, "status": {"phase": "Pending", "conditions": []}})
        self.phase[uid] = "starting"
        self.place(key)

    def place(self, key: Key) -> None:
        """Assign nodes to the pods of a JobSet."""
        for number, pod in enumerate(self._pods_of(self._uid(key))):
            self.edit("Pod", pod)["spec"]["nodeName"] = f"node-{number}"
        self.start_soon(key)

    def start_soon(self, key: Key) -> None:
        self._step(self._uid(key), "starting", self.dice.uniform(2, 30), self._start)

    def _start(self, key: Key) -> None:
        doc = self.of("JobSet")[key]
        uid, status = doc["metadata"]["uid"], doc["status"]
        for pod in self._pods_of(uid):
            running = [{"name": "host", "image": "i", "state": {"running": {}}}]
            started = {"phase": "Running", "startTime": self.time(), "containerStatuses": running}
            self.edit("Pod", pod)["status"] |= started
        made_for = int((doc["metadata"].get("annotations") or {}).get(ATTEMPT, 0))
        evictions = self.of("Workload")[key[0], f"jobset-{key[1]}"]["status"].get("schedulingStats", {})
        count = sum(one["count"] for one in evictions.get("evictions", ()))
        run = Run(key[1], made_for + status.get("restarts", 0) + count, uid, self.world.scheduler.now)
        if uid not in self.foreign:
            for other in self.runs.of_job(key[1]):
                self.world.violate("doubled", f"{key[1]} begins while attempt {other.number} runs")
            self.runs.every.append(run)
            self.runs.began[key[1], run.number] = run
        self.run[uid] = run
        lasts, how = self._work(key[1])
        self._step(uid, "running", lasts, how)

    def _work(self, job: str) -> tuple[float, Callable[[Key], None]]:
        plan = self.programs.get(job)
        if plan is None:
            return 1e9, lambda key: None
        left = max(1.0, plan.seconds - self.saved.get(job, 0.0))
        if plan.mistake and plan.mistake < left:
            return plan.mistake, lambda key: self.fail(key, "userError", "mistake")
        return left, self._complete

    def _complete(self, key: Key) -> None:
        uid = self._uid(key)
        for pod in self._pods_of(uid):
            ended = {"exitCode": 0, "reason": "Completed", "finishedAt": self.time()}
            self.edit("Pod", pod)["status"] |= {"phase": "Succeeded", "containerStatuses": _ended(ended)}
        self._break(uid, "done")
        self._over(uid)
        self._finish(key, "Completed", "AllJobsCompleted")

    def _finish(self, key: Key, how: str, reason: str) -> None:
        condition(self.edit("JobSet", key), how, True, self.time(), reason)
        uid = self._uid(key)
        self.phase[uid], self._turn[uid] = "finished", self._turn[uid] + 1
        self.freed()

    def freed(self) -> None:
        """Handle pods that have left their nodes."""

    # Internals

    def own(self, sender: str) -> list[str]:
        """Return the JobSets of this store that run or will run."""
        return [
            f"JobSet {name}"
            for (_, name), doc in self.of("JobSet").items()
            if (doc["metadata"].get("annotations") or {}).get(SENDER) == sender
            and doc["metadata"]["uid"] not in self.foreign
            and not (true(doc, "Completed") or true(doc, "Failed"))
        ]

    def leaving(self, job: str) -> bool:
        key = self.key(job)
        return key is None or "deletionTimestamp" in self.of("JobSet")[key]["metadata"]

    def key(self, job: str) -> Key | None:
        return (TEAM, job) if (TEAM, job) in self.of("JobSet") else None

    def _uid(self, key: Key) -> str:
        return str(self.of("JobSet")[key]["metadata"]["uid"])

    def _pods_of(self, uid: str) -> list[Key]:
        return [key for key, pod in self.of("Pod").items() if pod["metadata"].get("labels", {}).get(UID) == uid]

    def _pods_of_name(self, name: str) -> list[Key]:
        return [key for key, pod in self.of("Pod").items() if pod["metadata"].get("labels", {}).get(NAME) == name]

    def _tell_pods(self, uid: str) -> None:
        for key in self._pods_of(uid):
            self.edit("Pod", key)["metadata"].setdefault("deletionTimestamp", self.time())

    def _drop_pods(self, uid: str) -> None:
        for key in self._pods_of(uid):
            del self.of("Pod")[key]
        self._over(uid)
        self.freed()

    def _drop_jobset(self, key: Key) -> None:
        del self.of("JobSet")[key]
        self.of("Workload").pop((key[0], f"jobset-{key[1]}"), None)

    def _vanish(self, key: Key) -> None:
        self._drop_jobset(key)

    def _break(self, uid: str, cause: str) -> None:
        run, now = self.run.get(uid), self.world.scheduler.now
        if run is not None and run.broken == math.inf and run.alive:
            run.broken, run.cause = now, cause
            kept = (now - run.began) // SAVE_SECONDS * SAVE_SECONDS
            self.saved[run.job] = self.saved.get(run.job, 0.0) + (0.0 if cause == "mistake" else kept)

    def _over(self, uid: str) -> None:
        if run := self.run.get(uid):
            run.alive = False

    def _step(self, uid: str, phase: str, after: float, step: Callable[[Key], None]) -> None:
        """Schedule the next step of a JobSet, unless another event comes first."""
        turn = self._turn[uid] = self._turn.get(uid, 0) + 1
        self.phase[uid] = phase

        def due() -> None:
            if self._turn[uid] != turn:
                return
            if phase == "leaving":
                self._drop_pods(uid)
            key = next((key for key, doc in self.of("JobSet").items() if doc["metadata"]["uid"] == uid), None)
            if key is not None:
                step(key)

        self.world.scheduler.spawn(due, after)


def _ended(terminated: Doc) -> list[Doc]:
    return [{"name": "host", "image": "i", "state": {"terminated": terminated}}]
