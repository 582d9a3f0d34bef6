"""Pods as real process groups: every way to start, end, stop and lose them."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from support.waiting import PATIENCE, alive, until
from tpukit.core.errors import Transient
from tpukit.places.local import processes as pods
from tpukit.places.local.processes import Phase, Pod, PodState

STANDARD = 0x7FFF_FFFF  # signals that a program can handle; the two above belong to the C library
ENV = {"PATH": os.environ["PATH"]}


@pytest.fixture
def folder(home: Path) -> Path:
    return home / "pod"


def start(folder: Path, *argv: str, env: dict[str, str] | None = None, cwd: Path | None = None) -> None:
    pods.start([Pod(folder, argv, ENV if env is None else env, cwd or folder.parent)])


def shell(folder: Path, script: str) -> None:
    start(folder, "sh", "-c", script)


def python(folder: Path, script: str) -> None:
    start(folder, sys.executable, "-S", "-c", script)


def ended(folder: Path, seconds: float = PATIENCE) -> PodState:
    return until(lambda: (state := pods.status(folder)).phase in (Phase.ENDED, Phase.LOST) and state, seconds=seconds)


def log(folder: Path) -> str:
    return (folder / "log").read_text()


def shim_of(folder: Path) -> int:
    return json.loads((folder / "began").read_text())["shim"]


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 3", 3), ("exit 255", 255)])
def test_start_exit_code_is_recorded(folder, script, code):
    before = time.time()
    shell(folder, script)
    state = ended(folder)
    assert (state.phase, state.code, state.signalled, state.error) == (Phase.ENDED, code, False, "")
    assert before <= state.began <= state.ended <= time.time()
    assert not state.disk_full
    assert not state.out_of_memory


@pytest.mark.parametrize(("name", "code"), [("KILL", 137), ("TERM", 143), ("ABRT", 134), ("SEGV", 139)])
def test_start_death_by_signal_is_128_and_the_signal(folder, name, code):
    shell(folder, f"ulimit -c 0; kill -{name} $$; sleep 5")
    assert ended(folder).code == code


def test_start_output_goes_to_the_log(folder):
    shell(folder, "echo out; echo err >&2")
    ended(folder)
    assert log(folder) == "out\nerr\n"


def test_start_environment_is_what_was_given_and_the_mark(folder):
    env = {"PATH": os.environ["PATH"], "A": "b=c", "EMPTY": "", "SNOW": "☃"}
    start(folder, "cat", "/proc/self/environ", env=env)
    ended(folder)
    found = dict(line.split("=", 1) for line in log(folder).strip("\0").split("\0"))
    assert found == {**env, pods.MARK: str(folder)}


def test_start_program_finds_a_process_as_a_kubelet_makes_it(folder):
    """No blocked or ignored signal, empty standard input, only three open files, its own session and group."""
    script = (
        "import os, sys\n"
        "status = dict(line.split(':', 1) for line in open('/proc/self/status'))\n"
        "print(int(status['SigBlk'], 16), int(status['SigIgn'], 16) & 0x7eff_efff)\n"
        "print(repr(sys.stdin.read()), os.getsid(0) == os.getpgid(0) == os.getpid())\n"
        "print(sorted(map(int, os.listdir('/proc/self/fd')))[:3], len(os.listdir('/proc/self/fd')))\n"
    )
    python(folder, script)
    assert ended(folder).code == 0
    # Python ignores SIGPIPE and SIGXFSZ, which the next test checks; the fourth file is the listing.
    assert log(folder).splitlines() == ["0 0", "'' True", "[0, 1, 2] 4"]


def test_start_program_in_a_pipe_is_ended_by_its_reader(folder):
    """Python ignores SIGPIPE and its children inherit that; a shell pipeline would then never end quietly."""
    shell(folder, "grep -h SigIgn /proc/self/status; yes | head -1; echo done")
    assert ended(folder).code == 0
    ignored, *rest = log(folder).splitlines()
    assert int(ignored.split()[1], 16) & STANDARD == 0
    assert rest == ["y", "done"]


def test_start_under_nohup_program_can_still_be_hung_up(folder):
    ignore = "import signal; [signal.signal(number, signal.SIG_IGN) for number in (signal.SIGHUP, signal.SIGINT)]"
    assert _process(folder, "grep SigIgn /proc/self/status", before=ignore).wait(timeout=PATIENCE) == 0
    ended(folder)
    assert int(log(folder).split()[1], 16) & STANDARD == 0


def test_start_missing_binary_says_so(folder):
    start(folder, "no-such-binary")
    state = ended(folder)
    assert (state.phase, state.code) == (Phase.ENDED, 128)
    assert state.error == "no-such-binary: No such file or directory"


def test_start_file_that_is_no_program_says_so(home, folder):
    (home / "script").write_text("hello")
    start(folder, str(home / "script"))
    assert ended(folder).error.endswith("script: Permission denied")


def test_start_missing_folder_names_the_folder_not_the_program(home, folder):
    start(folder, "true", cwd=home / "gone")
    state = ended(folder)
    assert state.code == 128
    assert state.error == f"{home / 'gone'}: No such file or directory"


@pytest.mark.parametrize("name", ["x" * 100_000, "ä" * 30_000, "\x07" * 4000], ids=["long", "wide", "control"])
def test_start_monstrous_name_is_recorded_whole_enough(folder, name):
    start(folder, name)
    state = ended(folder)
    assert state.code == 128
    assert state.error.startswith(name[:100])


def test_start_twice_runs_once(folder):
    shell(folder, "echo ran")
    shell(folder, "echo ran")
    ended(folder)
    shell(folder, "echo ran")
    assert log(folder) == "ran\n"


def test_start_many_at_once_runs_once(folder):
    starters = [_process(folder, "echo ran; sleep 0.3") for _ in range(5)]
    assert [starter.wait(timeout=PATIENCE) for starter in starters] == [0] * 5
    assert ended(folder).code == 0
    assert log(folder) == "ran\n"


def test_start_while_somebody_looks_whether_it_runs_is_a_start(folder):
    """A status check holds the lock for a moment without being another shim."""
    folder.mkdir()
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        starter = threading.Thread(target=shell, args=(folder, "echo ran"))
        starter.start()
        starter.join(1.0)  # by then its shim has most likely requested the lock
    starter.join()
    assert pods.status(folder).phase is not Phase.ABSENT
    assert ended(folder).code == 0
    assert log(folder) == "ran\n"


def test_start_returns_when_it_has_begun(folder):
    start(folder, "sleep", "60")
    state = pods.status(folder)
    assert state.phase is Phase.RUNNING
    assert alive(state.pid)
    pods.stop(folder, 0)
    ended(folder)


def test_start_several_run_side_by_side(home):
    many = [Pod(home / f"pod-{index}", ("sh", "-c", f"exit {index}"), ENV, home) for index in range(5)]
    pods.start(many)
    assert [ended(pod.folder).code for pod in many] == [0, 1, 2, 3, 4]


def test_start_shim_that_fails_says_why(folder):
    (folder / "lock").mkdir(parents=True)  # nothing can be locked
    with pytest.raises(Transient, match=r"pod could not be started: .*Is a directory"):
        shell(folder, "true")


def test_look_never_started_is_absent(folder):
    assert pods.status(folder) == PodState(Phase.ABSENT)


def test_order_of_ends_is_the_order_of_deaths_not_of_cleaning_up(home):
    """A host that leaves many processes takes long to clean up, and is still the first that failed."""
    first, second = home / "first", home / "second"
    shell(first, "for i in $(seq 30); do setsid sleep 60 & done; sleep 0.3; exit 1")
    shell(second, f"while [ -e /proc/{pods.status(first).pid} ]; do :; done; exit 1")
    assert ended(first).order < ended(second).order


def test_stop_gives_the_grace_and_records_the_answer(folder):
    shell(folder, "trap 'echo saved; exit 143' TERM; echo ready; while :; do sleep 0.01; done")
    until(lambda: "ready" in pods.tail(folder))
    pods.stop(folder, 10)
    state = ended(folder)
    assert (state.code, state.signalled, log(folder)) == (143, True, "ready\nsaved\n")


def test_stop_after_the_grace_kills(folder):
    shell(folder, "trap '' TERM; echo ready; while :; do sleep 0.01; done")
    until(lambda: "ready" in pods.tail(folder))
    before = time.monotonic()
    pods.stop(folder, 0.5)
    state = ended(folder)
    assert (state.code, state.signalled) == (137, True)
    assert time.monotonic() - before > 0.4


def test_stop_stopped_process_is_killed_too(folder):
    shell(folder, "kill -STOP $$")
    until(lambda: pods.stopped(pods.status(folder).pid))
    pods.stop(folder, 0.2)
    assert ended(folder).code == 137
    assert not pods.stopped(pods.status(folder).pid)


def test_stop_again_and_again_tells_the_program_once_and_does_not_prolong_its_grace(folder):
    """Every tick repeats the stop; programs may treat a second SIGTERM as impatience."""
    shell(folder, "trap 'echo told' TERM; echo ready; while :; do sleep 0.01; done")
    until(lambda: "ready" in pods.tail(folder))
    pods.stop(folder, PATIENCE)
    until(lambda: "told" in pods.tail(folder))
    before = time.monotonic()
    while pods.status(folder).phase is Phase.RUNNING and time.monotonic() - before < 120:
        pods.stop(folder, 1.0)
        time.sleep(0.1)
    assert ended(folder).code == 137
    assert log(folder) == "ready\ntold\n"
    assert time.monotonic() - before < 60


def test_stop_with_less_grace_hurries(folder):
    shell(folder, "trap '' TERM; echo ready; while :; do sleep 0.01; done")
    until(lambda: "ready" in pods.tail(folder))
    pods.stop(folder, PATIENCE)
    pods.stop(folder, 0)
    assert ended(folder, PATIENCE / 2).code == 137


def test_stop_tells_the_first_process_alone(folder):
    """A kubelet does the same: a shell that does not forward the signal hides it from its children here as on GKE."""
    shell(folder, "trap : TERM; sh -c 'trap \"echo child told\" TERM; echo ready; sleep 0.5'; exit 0")
    until(lambda: "ready" in pods.tail(folder))
    pods.stop(folder, 10)
    assert ended(folder).code == 0
    assert "child told" not in log(folder)


@pytest.mark.skipif(sys.platform != "linux", reason="what a process hears is read from /proc, which Linux alone has")
@pytest.mark.parametrize(
    ("before", "code"),
    [
        ("pass", 137),
        ("signal.signal(15, signal.SIG_IGN)", 137),
        ("signal.signal(15, lambda *_: sys.exit(7))", 7),
        ("signal.pthread_sigmask(0, {15}); print('ready', flush=True); sys.exit(signal.sigwait({15}))", 15),
    ],
    ids=["default action", "ignored", "caught", "blocked and waited for"],
)
def test_stop_of_a_containers_first_process_is_dropped_by_the_kernel_unless_it_listens(folder, before, code):
    script = f"import signal, sys, time; {before}; print('ready', flush=True); time.sleep(60)"
    pods.start([Pod(folder, (sys.executable, "-S", "-c", script), ENV, folder.parent, init=True)])
    until(lambda: "ready" in pods.tail(folder))
    began = time.monotonic()
    pods.stop(folder, 0.5 if code == 137 else 30)
    state = ended(folder)
    assert (state.code, state.signalled) == (code, True)
    assert code != 137 or time.monotonic() - began > 0.4, "not before its grace was over"


def test_stop_of_a_process_that_is_no_container_ends_it_at_once(folder):
    shell(folder, "echo ready; exec sleep 60")
    until(lambda: "ready" in pods.tail(folder))
    pods.stop(folder, 30)
    assert ended(folder).code == 143


def test_stop_after_the_end_changes_nothing(folder):
    shell(folder, "exit 5")
    before = ended(folder)
    pods.stop(folder, 0)
    assert pods.status(folder) == before
    assert not pods.stop_requested(folder)


def test_stop_before_the_start_is_the_end(folder):
    """A shim launched by a killed starter must not start the pod after the stop."""
    pods.stop(folder, 5)
    assert pods.status(folder) == PodState(Phase.ENDED, code=143, signalled=True)
    shell(folder, "echo ran")
    assert pods.status(folder) == PodState(Phase.ENDED, code=143, signalled=True)
    assert not (folder / "log").exists()


def test_stop_while_it_starts_never_leaves_it_running(home):
    """Stop and start race at every distance; in any order, the pod has ended soon after."""
    for index in range(12):
        folder = home / f"pod-{index}"
        starter = threading.Thread(target=shell, args=(folder, "sleep 60"))
        starter.start()
        time.sleep(index * 0.006)
        pods.stop(folder, 0)
        starter.join()
        assert ended(folder).signalled


def test_stop_between_the_start_and_the_first_process_is_heard(folder):
    """The shim has found no stop note and is about to fork; here it blocks on pod.json, which is a pipe."""
    folder.mkdir()
    os.mkfifo(folder / "pod.json")
    starter = threading.Thread(target=shell, args=(folder, "unused"))
    starter.start()
    pipe = until(lambda: _open_if_read(folder / "pod.json"))
    pods.stop(folder, 0)
    assert pods.status(folder).phase is Phase.ABSENT  # it may still begin
    pod = {"argv": ["sleep", "60"], "env": {**ENV, pods.MARK: str(folder)}, "cwd": str(folder)}
    with os.fdopen(pipe, "w") as file:
        json.dump({**pod, "disks": [], "memory": 0, "mounts": [], "stamped": False, "starts_pods": False}, file)
    starter.join()
    assert ended(folder).signalled


@pytest.mark.parametrize(("starts_pods", "phase", "code"), [(True, Phase.ENDED, 7), (False, Phase.LOST, 137)])
def test_end_of_what_started_pods_leaves_them_running_where_it_is_known_to_start_pods(folder, starts_pods, phase, code):
    inner, go = folder.parent / "inner", folder.parent / "go"
    script = f"while [ ! -e {go} ]; do sleep 0.02; done; exit 7"
    outer = (
        "import sys, time; from pathlib import Path; from tpukit.places.local import processes as pods; "
        f"pods.start([pods.Pod(Path({str(inner)!r}), ('sh', '-c', {script!r}), {ENV!r}, Path('/'))]); "
        "time.sleep(60)"
    )
    env = {**ENV, "PYTHONPATH": str(Path(pods.__file__).parents[4])}
    argv = (sys.executable, "-c", outer)
    pods.start([Pod(folder, argv, env, folder.parent, starts_pods=starts_pods)])
    until(lambda: pods.status(inner).phase is Phase.RUNNING)
    os.kill(pods.status(folder).pid, signal.SIGKILL)
    assert ended(folder).code == 137
    go.touch()
    state = ended(inner)
    assert (state.phase, state.code) == (phase, code)


def test_end_sweeps_what_the_program_left_behind(folder):
    """The sweep covers children in the group, daemons in other sessions, and daemons that dropped the mark."""
    go = folder.parent / "go"
    wait = f"until [ -e {go} ]; do sleep 0.02; done"
    shell(folder, f"sleep 60 & setsid sleep 61 & env -i setsid sh -c 'sleep 62 & sleep 63' & {wait}; exit 0")
    pids = until(lambda: len(found := _descendants(pods.status(folder).pid)) >= 6 and found)
    go.touch()
    assert ended(folder).code == 0
    assert not any(alive(pid) for pid in pids)


def test_shim_killed_pod_is_lost_and_its_process_dead(folder):
    start(folder, "sleep", "60")
    state = pods.status(folder)
    os.kill(shim_of(folder), signal.SIGKILL)
    lost = ended(folder)
    assert (lost.phase, lost.pid, lost.code, lost.began) == (Phase.LOST, state.pid, 137, state.began)
    until(lambda: not alive(state.pid))
    shell(folder, "echo again")  # a lost pod does not run again
    assert pods.status(folder).phase is Phase.LOST


def test_shim_killed_children_that_slipped_away_are_found_by_their_mark(folder):
    shell(folder, "setsid sleep 60 & sleep 60")
    until(lambda: len(pods.strays(folder)) >= 3)
    os.kill(shim_of(folder), signal.SIGKILL)
    until(lambda: not alive(pods.status(folder).pid))
    # One process in the session of the dead process, one in its own.
    left = until(lambda: len(found := pods.strays(folder)) == 2 and found)
    assert pods.kill_strays(folder.parent) == left
    until(lambda: not pods.strays(folder))


def test_kill_strays_reaches_what_is_becoming_another_program_when_it_looks(folder, monkeypatch):
    """During exec, a process has no environment, and so no mark, for a moment."""
    start(folder, "sleep", "60")
    looks, look = [], pods.strays
    monkeypatch.setattr(pods, "strays", lambda below: (looks.append(below), look(below) if len(looks) > 1 else [])[1])
    pid = until(lambda: look(folder))[0]
    assert pods.kill_strays(folder) == [pid]
    assert ended(folder).code == 137


def test_kill_strays_reaches_what_its_victims_start_meanwhile(folder):
    """A shell whose child is killed runs its next command until it is killed itself."""
    shell(folder, "setsid sh -c 'while :; do sleep 60 & sleep 60; done' & sleep 60")
    until(lambda: len(pods.strays(folder)) >= 5)
    os.kill(shim_of(folder), signal.SIGKILL)
    pods.kill_strays(folder)
    assert pods.strays(folder) == []


def test_strays_folder_with_a_longer_name_is_another(home):
    start(home / "pod-10", "sleep", "60")
    assert pods.strays(home / "pod-1") == []
    until(lambda: pods.strays(home / "pod-10") == [pods.status(home / "pod-10").pid])
    pods.stop(home / "pod-10", 0)
    ended(home / "pod-10")


def test_starter_killed_pod_runs_on_and_its_end_is_recorded(folder):
    starter = _process(folder, "sleep 0.5; exit 7", after="import os, signal; os.killpg(0, signal.SIGKILL)")
    assert starter.wait(timeout=PATIENCE) == -9
    assert ended(folder).code == 7


def test_tail_gives_the_last_lines(folder):
    shell(folder, "seq 10000; printf last")
    ended(folder)
    assert pods.tail(folder, lines=3) == ["9999", "10000", "last"]
    assert pods.tail(folder.parent / "gone") == []


def _open_if_read(pipe: Path) -> int | None:
    """Open the pipe for writing if a reader waits for it."""
    try:
        opened = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        assert error.errno == errno.ENXIO
        return None
    os.set_blocking(opened, True)
    return opened


def _process(folder: Path, script: str, *, before: str = "", after: str = "") -> subprocess.Popen[bytes]:
    """Start a process that starts a pod."""
    start = (
        "from pathlib import Path; from tpukit.places.local import processes as pods\n"
        f"pods.start([pods.Pod(Path({str(folder)!r}), ('sh', '-c', {script!r}), {ENV!r}, Path('/'))])"
    )
    environment = {"PYTHONPATH": str(Path(pods.__file__).parents[4])}
    argv = [sys.executable, "-c", f"{before}\n{start}\n{after}"]
    return subprocess.Popen(argv, env=environment, start_new_session=True)


def _descendants(pid: int) -> list[int]:
    found, todo = [pid], [pid]
    while todo:
        try:
            children = Path(f"/proc/{todo[0]}/task/{todo[0]}/children").read_text(encoding="ascii").split()
        except OSError:
            children = []
        todo = [*todo[1:], *map(int, children)]
        found += map(int, children)
    return found
