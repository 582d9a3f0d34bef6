"""Programs that hang before their second step: detected where max.stall is set and their steps are readable."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.gke_driving import Driving
from tpukit.host.progress import Progress
from tpukit.jobs.controller.liveness import Liveness
from tpukit.jobs.plan import Plan
from tpukit.jobs.reasons import Reason, State
from tpukit.places import progress
from tpukit.places.base import HostView
from tpukit.places.log_progress import FIRST_BYTES, LogProgress

STARTS = 'tpukit-progress {"starting": true, "time": 1700000000.0}'
SHOWN = {
    "library": [STARTS],
    "library, lines without steps": [STARTS, "loading the data"],
    "one step": ["step 1 loss 3.4"],
    "library and one step": [STARTS, "step 1 loss 3.4"],
}
UNSEEN = {
    "nothing": [],
    "lines without steps": ["loading the data", "compiling"],
    "report without steps": ['tpukit-progress {"loss": 3.4, "time": 1700000000.0}'],
}


@pytest.fixture
def driving(tmp_path):
    driving = Driving(tmp_path)
    yield driving
    driving.close()


def say(driving, job_id, lines):
    for pod in driving.cluster.pods(job_id):
        for line in lines:
            driving.cluster.say(pod, line)


def silent_for(driving, job_id, seconds):
    """Run the program without a new line until the driver stops the attempt."""
    for _ in range(int(seconds / 5)):
        driving.clock.sleep(4.0)
        driving.tick()
        if driving.job(job_id).attempt.stopping:
            return


@pytest.mark.parametrize("shown", SHOWN)
def test_hang_before_the_second_step_is_noticed_where_max_stall_is_set(driving, shown):
    job_id = driving.send(max={"stall": "60s"})
    driving.run(job_id)
    say(driving, job_id, SHOWN[shown])
    silent_for(driving, job_id, 50)
    assert driving.job(job_id).attempt.stopping is None
    silent_for(driving, job_id, 60)
    assert driving.job(job_id).attempt.stopping is Reason.HANG


@pytest.mark.parametrize("shown", SHOWN)
def test_silence_before_the_second_step_is_no_hang_where_max_stall_is_not_set(driving, shown):
    job_id = driving.send()
    driving.run(job_id)
    say(driving, job_id, SHOWN[shown])
    silent_for(driving, job_id, 3000)
    assert driving.job(job_id).attempt.stopping is None


@pytest.mark.parametrize("shown", UNSEEN)
def test_program_whose_steps_cannot_be_read_is_never_stopped(driving, shown):
    job_id = driving.send(max={"stall": "60s"})
    driving.run(job_id)
    say(driving, job_id, UNSEEN[shown])
    silent_for(driving, job_id, 3000)
    assert driving.job(job_id).attempt.stopping is None


def test_program_that_prints_rarely_is_not_stopped_by_a_driver_that_takes_over(driving):
    job_id = driving.send(max={"stall": "60s"})
    driving.run(job_id)
    say(driving, job_id, ["step 1 loss 3.4"])
    driving.tick()
    say(driving, job_id, ["step 2 loss 3.3"])
    driving.tick()
    driving.new_driver()
    silent_for(driving, job_id, 600)
    assert driving.job(job_id).attempt.stopping is None


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lines=st.lists(st.sampled_from([STARTS, "compiling", "step 1 loss 3.4", "step 2 loss 3.3"]), max_size=4),
    set_by_user=st.booleans(),
    new_driver=st.booleans(),
)
def test_only_jobs_with_max_stall_and_readable_steps_hang_early(tmp_path_factory, lines, set_by_user, new_driver):
    driving = Driving(tmp_path_factory.mktemp("driving"))
    try:
        job_id = driving.send(max={"stall": "60s"} if set_by_user else {})
        driving.run(job_id)
        say(driving, job_id, lines)
        driving.tick(2)
        if new_driver:
            driving.new_driver()
        silent_for(driving, job_id, 200)
        steps = {line for line in lines if line.startswith("step")}
        hangs = set_by_user and (len(steps) == 1 or (not steps and STARTS in lines))
        assert driving.job(job_id).attempt.stopping is (Reason.HANG if hangs else None)
    finally:
        driving.close()


def test_waiting_for_other_hosts_is_no_silence():
    liveness = Liveness()
    idle = 0.0
    for second in range(0, 100, 5):
        host = HostView("h0", 0, 0, "running", early=True, heard=100.0 + second)
        (counted,) = liveness.count("train", 0, [host], running=second > 80)
        idle = counted.idle
    assert idle == 15.0


def test_start_of_a_program_is_announced_once_and_its_first_step_replaces_it(tmp_path, capsys):
    file = tmp_path / "progress"
    host = Progress(str(file), lines=30.0)
    host.announce()
    assert progress.read(file, 2e9).early
    assert progress.parse(capsys.readouterr().out.removeprefix("tpukit-progress "), 2e9).early
    host.update({"step": 1})
    said = progress.parse(capsys.readouterr().out.removeprefix("tpukit-progress "), 2e9)
    assert (said.step, said.early) == (1, False)
    assert (progress.read(file, 2e9).step, progress.read(file, 2e9).early) == (1, False)


def test_log_of_which_only_the_end_is_read_does_not_show_how_many_steps_came_before(tmp_path):
    short, long = tmp_path / "short", tmp_path / "long"
    short.write_text("step 1 loss 3.4\n")
    long.write_text("x\n" * FIRST_BYTES + "step 1 loss 3.4\n")
    logs = LogProgress()
    assert logs.read(short, "", 1.0).early
    assert not logs.read(long, "", 1.0).early


def test_announced_start_survives_lines_without_steps_and_ends_with_the_second_step():
    started = progress.Progress(moved=5.0, early=True)
    assert progress.first_of(started, progress.Progress).early
    two = progress.Progress(step=2, moved=6.0, pace=1.0)
    assert progress.first_of(started, lambda: two) == two


@pytest.mark.parametrize(("bounds", "kept"), [({}, False), ({"stall": "10m"}, True)])
def test_stored_plan_remembers_whether_the_job_file_sets_max_stall(driving, bounds, kept):
    job_id = driving.send(max=bounds)
    stored = Plan.from_json(driving.job(job_id).plan)
    assert ("stall" in stored.spec.max.given, stored.spec.max.stall) == (kept, 600)
    assert Plan.from_json(stored.to_json()).to_json() == stored.to_json()
    assert driving.job(job_id).state is State.PENDING
