"""Slices handed out by queues, counted from the jobs that hold them, independent of Kueue's queue status."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from support.team_cluster import FakeCluster
from tpukit.teams import queue_rows, registry, shares, usage, waiting
from tpukit.teams.waiting import Queues
from unit.teams.test_waiting import FLAVORS, cluster_queue, condition, local_queue, runs, workload

KEY = ("v4-2x2x2", "google.com/tpu")
COUNTS = st.lists(st.tuples(st.sampled_from(["tpu", "red"]), st.integers(1, 3)), max_size=6)


@given(COUNTS, st.integers(0, 9), st.integers(0, 9))
def test_status_says_what_the_jobs_hold_whatever_it_said_before(jobs, stale_used, stale_borrowed):
    stale = [cluster_queue(name, own=2, used=stale_used, borrowed=stale_borrowed) for name in ("tpu", "red")]
    there = [runs(f"job-{number}", queue=queue, slices=slices) for number, (queue, slices) in enumerate(jobs)]
    for queue in usage.counted(stale, there):
        used = 8 * sum(slices for name, slices in jobs if name == queue["metadata"]["name"])
        share = shares.shares(queue)[KEY]
        assert (share.own, share.used, share.borrowed) == (16, used, max(0, used - 16))


def test_job_that_ended_or_lost_its_slices_holds_nothing():
    ended = runs("ended")
    ended["status"]["conditions"].append(condition("Finished"))
    waits = workload("waits", conditions=[condition("QuotaReserved", "False")])
    (queue,) = usage.counted([cluster_queue(used=2)], [ended, waits])
    assert shares.shares(queue)[KEY].used == 0


def test_queue_without_a_cohort_borrows_nothing():
    (queue,) = usage.counted([cluster_queue(own=1, cohort="")], [runs("a", slices=2)])
    assert shares.shares(queue)[KEY].borrowed == 0


class Lagging(FakeCluster):
    """A cluster whose Kueue has admitted a job but has not updated the status of the queue."""

    def __init__(self, *jobs: dict) -> None:
        super().__init__()
        for kind, one in [
            *(("Workload", job) for job in jobs),
            ("LocalQueue", local_queue()),
            ("ClusterQueue", cluster_queue()),
            *(("ResourceFlavor", flavor) for flavor in FLAVORS),
        ]:
            meta = one["metadata"]
            self.objects[kind, meta.get("namespace", ""), meta["name"]] = one


def test_queues_are_shown_as_their_jobs_are():
    queues, _ = registry.read_queues(Lagging(runs("first", slices=2), workload("second")))
    (row,) = [row for row in queue_rows.queues_of(queues) if row.tpu == "v4-16"]
    assert (row.own, row.used, row.waiting) == ("2", "2", 1)
    (second,) = [one for one in queues.workloads if one["metadata"]["name"] == "jobset-second"]
    assert waiting.why(second, queues) == "needs 1 × v4-16, none free; red/first (medium) runs there"


def test_waiting_job_is_counted_in_the_row_of_the_slice_that_it_waits_for():
    queue = cluster_queue()
    (group,) = queue["spec"]["resourceGroups"]
    group["flavors"].append({**group["flavors"][0], "name": "v4-2x2x4"})
    labels = {**FLAVORS[0]["spec"]["nodeLabels"], "cloud.google.com/gke-tpu-topology": "2x2x4"}
    flavors = [*FLAVORS, {"metadata": {"name": "v4-2x2x4"}, "spec": {"nodeLabels": labels}}]
    queues = Queues([workload("first"), workload("second")], [local_queue()], [queue], flavors)
    assert {row.tpu: row.waiting for row in queue_rows.queues_of(queues)} == {"v4-16": 2, "v4-32": 0}


def test_without_all_jobs_kueues_own_counts_are_shown():
    queues = Queues([], [local_queue()], [{**cluster_queue(used=1)}], FLAVORS)
    queues.cluster_queues[0]["status"]["pendingWorkloads"] = 3
    (row,) = [row for row in queue_rows.queues_of(queues, all_teams=False) if row.tpu == "v4-16"]
    assert (row.used, row.waiting) == ("1", 3)


def jobset(name: str, *conditions: dict) -> dict:
    return {"metadata": {"name": name, "namespace": "red"}, "status": {"conditions": list(conditions)}}


def test_job_that_kueue_has_not_seen_yet_is_one_of_the_teams():
    cluster = Lagging(workload("waits"))
    for made in (jobset("just-sent"), jobset("over", condition("Completed")), jobset("waits")):
        cluster.objects["JobSet", "red", made["metadata"]["name"]] = made
    owned = {"metadata": {"name": "waits-slice-0", "namespace": "red", "ownerReferences": [{"name": "waits"}]}}
    cluster.objects["Job", "red", "waits-slice-0"] = owned
    assert registry.jobs(cluster, "red") == ["just-sent", "waits"]
