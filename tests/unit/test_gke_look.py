"""Which attempt a JobSet is at, and which of its pods belong to it."""

from hypothesis import given
from hypothesis import strategies as st

from tpukit.places.gke.look import Found, Look, seconds
from unit.gke_world import ADMITTED, condition, found, jobset, pod, time, workload

counts = st.integers(0, 50)


@given(counts, counts, counts)
def test_attempt_is_the_first_one_plus_restarts_plus_evictions(first, restarts, evictions):
    of = found(of=jobset(attempt=first, restarts=restarts), queued=workload(ADMITTED, evictions=evictions))
    assert of.attempt == first + restarts + evictions


@given(st.text())
def test_attempt_whatever_somebody_wrote_into_the_note_is_a_number(text):
    assert Found({"metadata": {"annotations": {"tpukit.dev/attempt": text}}}).first >= 0


def test_jobset_of_others_has_no_sender_and_is_at_attempt_0():
    theirs = Found({"metadata": {"name": "theirs"}, "spec": {}})
    assert (theirs.sender, theirs.attempt, theirs.finished) == ("", 0, False)


def test_current_pods_leave_out_those_of_earlier_restarts_and_of_earlier_admissions():
    old_restart, old_admission = pod("a-0-0-x", restart=0), pod("b-0-0-x", restart=1, created=90.0)
    now = pod("c-0-0-x", restart=1, created=100.0)
    of = found(old_restart, old_admission, now, of=jobset(restarts=1), queued=workload(condition("Admitted", at=100.0)))
    assert of.current_pods() == (now,)


def test_current_pods_none_while_it_waits():
    waits = found(pod(), queued=workload(condition("Admitted", status="False")))
    assert waits.admitted_at is None
    assert waits.current_pods() == ()


def test_admitted_without_kueue_is_whether_it_is_suspended():
    free, held = jobset(), jobset()
    held["spec"]["suspend"] = True
    assert Found(free).admitted_at == 0.0
    assert Found(held).admitted_at is None


def test_find_joins_workloads_by_owner_and_pods_by_name():
    look = Look(0.0, {"train-1": jobset()}, {"js": workload(ADMITTED)}, pods={"train-1": (pod(),)})
    of = look.find("train-1")
    assert (of.workload is not None, len(of.pods)) == (True, 1)
    assert look.find("other").jobset is None


def test_seconds_reads_what_kubernetes_writes():
    assert seconds(time(1_700_000_000)) == 1_700_000_000
    assert seconds("2026-01-02T03:04:05.123456Z") == 1767323045.123456
    assert seconds(None) == 0.0
