"""Reasons why jobs wait: one sentence from Kueue's report, for users who see all teams and users who see one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpukit import catalogue
from tpukit.jobs.render.pool_kinds import PoolKind
from tpukit.teams import boosts, queue_rows, waiting, workloads
from tpukit.teams.waiting import Queues

V4_16 = {"cloud.google.com/gke-tpu-accelerator": "tpu-v4-podslice", "cloud.google.com/gke-tpu-topology": "2x2x2"}
FLAVORS = [
    {"metadata": {"name": "v4-2x2x2"}, "spec": {"nodeLabels": V4_16}},
    {"metadata": {"name": "cpu"}, "spec": {"nodeLabels": {"tpukit.dev/pool": "cpu"}}},
]


def workload(job, *, team="red", slices=1, priority=0, at=0, conditions=(), selector=V4_16, **spec):
    """Return a job of v4-16 slices: two hosts of four chips each."""
    pod = {
        "containers": [{"resources": {"requests": {"google.com/tpu": 4, "cpu": "96", "memory": "100G"}}}],
        "nodeSelector": selector,
    }
    return {
        "metadata": {
            "name": f"jobset-{job}",
            "namespace": team,
            "uid": uid(job),
            "creationTimestamp": moment(at),
            "ownerReferences": [{"kind": "JobSet", "name": job}],
        },
        "spec": {
            "queueName": team,
            "priority": priority,
            "podSets": [{"name": "slice", "count": 2 * slices, "template": {"spec": pod}}],
            **spec,
        },
        "status": {"conditions": list(conditions)},
    }


def uid(job):
    return job.encode().hex()


def moment(second):
    return f"2026-01-01T00:{second // 60:02}:{second % 60:02}Z"


def condition(kind, status="True", at=0, **more):
    return {"type": kind, "status": status, "lastTransitionTime": moment(at), "message": "", "reason": kind, **more}


def test_running_job_shows_what_its_eviction_costs_and_a_waiting_one_does_not():
    notes = boosts.written(321, 12.5, 480.0)
    running, waits = runs("a"), workload("b")
    for one in (running, waits):
        one["metadata"]["annotations"] = notes
    rows = queue_rows.jobs(Queues([running, waits, runs("c")], [], [], FLAVORS))
    assert {row.job: (row.eviction_usd, row.unsaved_s) for row in rows} == {
        "a": (12.5, 480.0),
        "b": (None, None),
        "c": (None, None),
    }


def runs(job, *, queue="tpu", slices=1, **more):
    made = workload(job, slices=slices, conditions=[condition("QuotaReserved"), condition("Admitted")], **more)
    usage = {"google.com/tpu": str(8 * slices), "cpu": str(192 * slices), "memory": f"{200 * slices}G"}
    assigned = {"name": "slice", "flavors": dict.fromkeys(usage, "v4-2x2x2"), "resourceUsage": usage}
    made["status"]["admission"] = {"clusterQueue": queue, "podSetAssignments": [assigned]}
    return made


def evicted(by, at=60):
    message = f"Preempted to accommodate a workload (UID: {uid(by)}, JobUID: 1) due to prioritization"
    return condition("Evicted", at=at, reason="Preempted", message=message)


def cluster_queue(name="tpu", own=2, used=0, *, limit=None, borrowed=0, cohort="tpu", cpus=10_000, **spec):
    def resource(kind, number):
        borrowing = {"borrowingLimit": 8 * limit} if limit is not None and kind == "google.com/tpu" else {}
        return {"name": kind, "nominalQuota": number, **borrowing}

    amounts = {"google.com/tpu": 8 * own, "cpu": cpus, "memory": "90000G"}
    reserved = [{"name": "google.com/tpu", "total": str(8 * used), "borrowed": str(8 * borrowed)}]
    return {
        "metadata": {"name": name},
        "spec": {
            **({"cohortName": cohort} if cohort else {}),
            "resourceGroups": [
                {
                    "flavors": [
                        {"name": "v4-2x2x2", "resources": [resource(*pair) for pair in amounts.items()]},
                        {"name": "cpu", "resources": [resource(kind, 0) for kind in amounts]},
                    ]
                }
            ],
            **spec,
        },
        "status": {"flavorsReservation": [{"name": "v4-2x2x2", "resources": reserved}]},
    }


def local_queue(team="red", to="tpu", **spec):
    return {"metadata": {"name": team, "namespace": team}, "spec": {"clusterQueue": to, **spec}}


def why(asked, others=(), cluster_queues=None, local_queues=None):
    queues = Queues(
        [*others, asked],
        local_queues or [local_queue(), local_queue("blue")],
        cluster_queues or [cluster_queue()],
        FLAVORS,
    )
    return waiting.why(asked, queues)


def test_job_that_runs_or_ended_has_no_reason_to_wait():
    assert why(runs("a")) == ""
    assert why(workload("a", conditions=[condition("Finished")])) == ""


def test_job_short_of_quota_names_what_is_missing_and_who_has_it():
    full = [cluster_queue(used=2)]
    others = [runs("one", team="blue"), runs("two", team="blue", priority=1000)]
    assert why(workload("a"), others, full) == (
        "needs 1 × v4-16, none free; blue/one (medium) and blue/two (1000) run there"
    )


def test_job_of_a_member_who_sees_no_others_still_says_how_much_is_missing():
    assert why(workload("a", slices=2), (), [cluster_queue(used=1)]) == "needs 2 × v4-16, 1 free"


def test_job_names_who_is_ahead_by_priority_then_by_time():
    ahead = [workload("late", team="blue", priority=1000, at=9), workload("early", at=1), workload("after", at=8)]
    assert why(workload("a", at=5), ahead, [cluster_queue(used=2)]).endswith("; 2 ahead, first blue/late (1000)")


def test_evicted_job_says_when_and_by_whom_and_what_it_waits_for():
    said = why(
        workload("a", conditions=[evicted("big")]), [runs("big", team="blue", slices=2)], [cluster_queue(used=2)]
    )
    assert said == (
        "evicted at 00:01:00 UTC by blue/big (medium); needs 1 × v4-16, none free; blue/big (medium) runs there"
    )


def test_evicted_job_whose_hosts_are_there_still_is_leaving():
    leaving = runs("a")
    leaving["status"]["conditions"].append(evicted("big"))
    assert why(leaving, [workload("big", team="blue")]) == (
        "evicted at 00:01:00 UTC by blue/big (medium); its hosts are stopping"
    )
    assert why(workload("big", team="blue"), [leaving], [cluster_queue(used=2)]) == (
        "needs 1 × v4-16, none free; red/a (medium) leaves for it"
    )


def test_evicted_job_whose_evictor_is_out_of_sight_says_how():
    assert why(workload("a", conditions=[evicted("gone")])).startswith("evicted at 00:01:00 UTC for another job; ")


def test_job_beyond_all_quota_can_never_run():
    assert why(workload("a", slices=3)) == "can never run: asks for 3 × v4-16, and its queue can have 2"
    lent = [cluster_queue(own=2), cluster_queue("blue", own=1)]
    assert "needs" not in why(workload("a", slices=3), (), lent), "it may borrow"
    limited = [cluster_queue(own=1, limit=0), cluster_queue("blue", own=2)]
    assert why(workload("a", slices=2), (), limited).startswith("can never run: asks for 2")


def test_job_of_a_shape_that_the_queue_has_not_names_the_shape():
    other = {**V4_16, "cloud.google.com/gke-tpu-topology": "2x2x4"}
    assert why(workload("a", selector=other)) == "ClusterQueue tpu has no v4-32"
    assert why(workload("a", selector={"tpukit.dev/pool": "gpu"})) == (
        "ClusterQueue tpu has no quota of nodes with tpukit.dev/pool=gpu"
    )


def test_spot_job_while_all_spot_slices_are_free_is_told_of_the_taint_that_it_does_not_tolerate_and_of_nothing_else():
    spot = PoolKind(catalogue.find("v4-16"), "spot")
    ((key, value),) = spot.taints
    taint = {"key": key, "value": value, "effect": "NoSchedule"}
    flavor = {"metadata": {"name": spot.flavor}, "spec": {"nodeLabels": spot.labels, "nodeTaints": [taint]}}
    queue = cluster_queue()
    queue["spec"]["resourceGroups"][0]["flavors"][0]["name"] = spot.flavor

    def said(*tolerations):
        asked = workload("a", slices=2, selector=spot.labels)
        asked["spec"]["podSets"][0]["template"]["spec"]["tolerations"] = list(tolerations)
        return waiting.why(asked, Queues([asked], [local_queue()], [queue], [flavor, *FLAVORS]))

    assert said({"key": key, "operator": "Equal", "value": value, "effect": "NoSchedule"}) == (
        "Kueue is about to start it"
    )
    assert said() == f"its pods do not tolerate the taint {key}={value} of v4-16:spot: add this toleration to them"


def test_job_held_up_by_the_limit_of_borrowing_says_so_though_slices_are_free():
    queues = [cluster_queue("red", own=1, used=1, limit=0), cluster_queue(own=1)]
    assert why(workload("a"), [runs("b", queue="red")], queues, [local_queue(to="red")]).startswith(
        "needs 1 × v4-16, none free; its queue has 1 and may borrow none"
    )


def test_job_whose_quota_is_lent_says_to_whom():
    queues = [cluster_queue("red", own=1), cluster_queue(own=1, used=2, borrowed=1)]
    assert "its own quota is borrowed by tpu" in why(workload("a"), (), queues, [local_queue(to="red")])


def test_job_short_of_cpus_alone_says_cpus():
    assert why(workload("a"), (), [cluster_queue(cpus=100)]) == (
        "can never run: asks for 192 CPUs of v4-16, and its queue can have 100 CPUs"
    )


@pytest.mark.parametrize(
    ("asked", "local", "queue", "said"),
    [
        ({}, {"team": "green"}, {}, "there is no queue red in namespace red; `tpu team add red` creates the team's"),
        ({}, {"stopPolicy": "Hold"}, {}, "the queue of team red is stopped (stopPolicy of LocalQueue red)"),
        ({}, {"to": "gone"}, {}, "the team's queue refers to ClusterQueue gone, which does not exist"),
        ({}, {}, {"stopPolicy": "HoldAndDrain"}, "ClusterQueue tpu is stopped (stopPolicy)"),
        ({"active": False}, {}, {}, "its Workload is inactive: set `active: true` in the Workload to admit it"),
    ],
)
def test_job_that_nobody_looks_at_says_what_is_in_the_way(asked, local, queue, said):
    assert why(workload("a", **asked), (), [cluster_queue(**queue)], [local_queue(**local)]) == said


def test_inactive_queue_passes_on_what_kueue_says_of_it():
    queue = cluster_queue()
    queue["status"]["conditions"] = [condition("Active", "False", message="Can't admit: FlavorNotFound")]
    assert why(workload("a"), (), [queue]) == "ClusterQueue tpu admits no jobs: Can't admit: FlavorNotFound"


def test_job_with_enough_for_it_waits_for_kueue_and_passes_on_what_it_says():
    assert why(workload("a")) == "Kueue is about to start it"
    said = condition("QuotaReserved", "False", message="something new")
    assert why(workload("a", conditions=[said])) == "Kueue says: something new"
    checked = workload("a", conditions=[condition("QuotaReserved")])
    checked["status"]["admissionChecks"] = [{"name": "dws", "state": "Pending"}]
    assert why(checked) == "has its quota, and waits for dws"
    again = workload("a")
    again["status"]["requeueState"] = {"requeueAt": moment(90)}
    assert why(again) == "is tried again at 00:01:30 UTC"


JOBS = st.lists(
    st.tuples(st.sampled_from(["red", "blue"]), st.sampled_from([-1000, 0, 1000]), st.integers(0, 59), st.booleans()),
    max_size=12,
)


@given(JOBS)
def test_line_is_sorted_by_priority_then_time_and_everybody_knows_who_is_ahead(jobs):
    made = [
        (runs if started else workload)(f"job{number}", team=team, priority=priority, at=at)
        for number, (team, priority, at, started) in enumerate(jobs)
    ]
    queues = Queues(made, [local_queue(), local_queue("blue")], [cluster_queue(used=2)], FLAVORS)
    line = queues.line(queues.cluster_queues[0])
    keys = [(-one["spec"]["priority"], one["metadata"]["creationTimestamp"]) for one in line]
    assert keys == sorted(keys)
    assert {workloads.job(one) for one in line} == {f"job{n}" for n, job in enumerate(jobs) if not job[3]}
    assert [len(waiting.ahead(one, queues)) for one in line] == list(range(len(line)))
    rows = queue_rows.jobs(queues)
    assert [row.place for row in rows if row.state == "waits"] == list(range(1, len(line) + 1))
    assert [row.state for row in rows] == sorted((row.state for row in rows), key=["runs", "waits"].index)
    assert all(bool(row.why) == (row.state == "waits") for row in rows)
    assert queue_rows.jobs(queues, "red") == [row for row in rows if row.team == "red"]


def test_job_evicted_because_its_hosts_did_not_come_up_goes_to_the_end_and_one_that_was_preempted_does_not():
    preempted = workload("a", at=1, conditions=[evicted("x", at=50)])
    timed_out = workload("b", at=2, conditions=[condition("Evicted", at=50, reason="PodsReadyTimeout")])
    fresh = workload("c", at=3)
    line = sorted([fresh, timed_out, preempted], key=workloads.order)
    assert [workloads.job(one) for one in line] == ["a", "c", "b"]


def test_job_without_a_queue_is_listed_last_without_a_place():
    queues = Queues([workload("a", team="nobody")], [local_queue()], [cluster_queue()], FLAVORS)
    (row,) = queue_rows.jobs(queues)
    assert (row.place, row.queue, row.tpu) == (None, "", "v4-16")


@pytest.mark.parametrize(("slices", "text"), [(1, "v4-16"), (2, "2 × v4-16"), (11, "11 × v4-16"), (21, "21 × v4-16")])
def test_job_is_listed_with_the_number_of_its_slices(slices, text):
    queues = Queues([workload("a", slices=slices)], [local_queue()], [cluster_queue(own=30)], FLAVORS)
    (row,) = queue_rows.jobs(queues)
    assert row.tpu == text


def test_running_job_of_a_queue_that_borrows_is_told_so():
    lender = cluster_queue("red", own=1)
    queues = Queues([runs("a", slices=2)], [local_queue()], [cluster_queue(own=1, used=2, borrowed=1), lender], FLAVORS)
    (row,) = queue_rows.jobs(queues)
    assert row.why == "queue tpu borrows 1 × v4-16, and returns them on request"
    assert [(row.queue, row.own, row.used, row.borrowed) for row in queue_rows.queues_of(queues)] == [
        ("tpu", "1", "2", "1"),
        ("red", "1", "0", "0"),
    ]


def test_job_of_two_slices_can_never_have_them_from_queued_provisioning_which_serves_one_pool():
    labels = {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice",
        "cloud.google.com/gke-tpu-topology": "4x4",
        "cloud.google.com/gke-flex-start": "true",
    }
    flavor = {"metadata": {"name": "v6e-4x4-flex-start"}, "spec": {"nodeLabels": labels}}
    amounts = [{"name": kind, "nominalQuota": "90000G"} for kind in ("google.com/tpu", "cpu", "memory")]
    group = {"coveredResources": [], "flavors": [{"name": "v6e-4x4-flex-start", "resources": amounts}]}
    checks = {"admissionChecks": [{"name": "flex-start", "onFlavors": ["v6e-4x4-flex-start"]}]}
    queue = cluster_queue(resourceGroups=[group], admissionChecksStrategy=checks)
    local = [{"metadata": {"name": "red", "namespace": "red"}, "spec": {"clusterQueue": "tpu"}}]

    def never(hosts, queue):
        asked = workload("a", selector=labels)
        asked["spec"]["podSets"][0]["count"] = hosts
        return waiting.never(asked, Queues([], local, [queue], [flavor]))

    assert never(4, queue) == ""
    assert "asks for 2 × v6e-16:flex-start, and queued provisioning serves a request from one pool" in never(8, queue)
    del queue["spec"]["admissionChecksStrategy"]
    assert never(8, queue) == ""
