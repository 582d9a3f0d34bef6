"""launch.sh, run by the shells that images have."""

import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time

import pytest

from support.waiting import PATIENCE
from tpukit.core import resources

SCRIPT = (resources.folder("jobset") / "launch.sh").read_text()
FOUND = {shell: shutil.which(shell) for shell in ("dash", "bash", "busybox", "sh")}
SHELLS = list({os.path.realpath(path): shell for shell, path in FOUND.items() if path}.values())

SLOWER = SCRIPT.replace("sleep 3 ", "sleep 60 ")
"""The same script with a delay longer than any caused by a busy machine."""
assert SLOWER != SCRIPT

GIVEN = {"TPUKIT_FIRST_ATTEMPT": "0", "TPUKIT_FIRST_STAGE": "0", "TPUKIT_RESTARTS": "0"}

each_shell = pytest.mark.parametrize("shell", SHELLS)


@pytest.fixture
def launch():
    with contextlib.ExitStack() as stack:

        def start(shell, *command, script=SCRIPT, **env):
            shell = ["busybox", "sh"] if shell == "busybox" else [shell]
            line = [*shell, "-c", script, "tpukit-launch", *command]
            env = {**os.environ, **GIVEN, **env}
            process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env)
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield start


def python(program):
    return [sys.executable, "-S", "-c", program]


def ready(process):
    assert process.stdout.readline() == "ready\n"


@each_shell
@pytest.mark.parametrize("code", [0, 1, 2, 126, 127, 128, 137, 143, 255])
def test_launch_any_exit_code_is_passed_on_at_once(launch, shell, code):
    start = time.monotonic()
    assert launch(shell, "sh", "-c", f"exit {code}", script=SLOWER).wait(PATIENCE) == code
    assert time.monotonic() - start < 60


@each_shell
@pytest.mark.parametrize("name, code", [("KILL", 137), ("TERM", 143), ("SEGV", 139)])
def test_launch_command_killed_by_a_signal_gives_its_code(launch, shell, name, code):
    assert launch(shell, "sh", "-c", f"kill -{name} $$").wait(PATIENCE) == code


def test_launch_aborted_command_is_passed_on_three_seconds_late(launch):
    start = time.monotonic()
    processes = [launch(shell, "sh", "-c", "kill -ABRT $$") for shell in SHELLS]
    assert [process.wait(PATIENCE) for process in processes] == [134] * len(SHELLS)
    assert 3 <= time.monotonic() - start < 60


@each_shell
def test_launch_told_to_leave_while_it_delays_134_leaves_with_134(launch, shell):
    process = launch(shell, "sh", "-c", "echo ready; exit 134", script=SLOWER)
    ready(process)
    time.sleep(0.3)
    start = time.monotonic()
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 134
    assert time.monotonic() - start < 60


@each_shell
def test_launch_missing_program_gives_127(launch, shell):
    assert launch(shell, "no-such-program").wait(PATIENCE) == 127


@each_shell
def test_launch_arguments_arrive_verbatim(launch, shell):
    arguments = [
        "",
        " ",
        "*",
        "$(id)",
        "${HOME}",
        "`id`",
        "a'b\"c",
        "--x=1 2",
        "\\n",
        "line\nbreak",
        "-n",
        "ünï😀",
        "#",
    ]
    process = launch(shell, *python("import json, sys; print(json.dumps(sys.argv[1:]))"), *arguments)
    assert json.loads(process.communicate(timeout=PATIENCE)[0]) == arguments


@each_shell
@pytest.mark.parametrize(("code", "passed_on"), [(0, 143), (7, 7), (143, 143)])
def test_launch_sigterm_reaches_the_command_and_its_answer_is_passed_on_unless_it_says_done(
    launch, shell, code, passed_on
):
    program = f"""
import signal, sys, time
def leave(*_):
    time.sleep(0.2)
    print("saved", flush=True)
    sys.exit({code})
signal.signal(signal.SIGTERM, leave)
print("ready", flush=True)
time.sleep(20)
"""
    process = launch(shell, *python(program))
    ready(process)
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == passed_on
    assert process.stdout.read() == "saved\n"


@each_shell
def test_launch_command_that_ignores_sigterm_is_waited_for(launch, shell):
    program = """
import signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(0.5)
sys.exit(5)
"""
    process = launch(shell, *python(program))
    ready(process)
    for _ in range(3):
        process.send_signal(signal.SIGTERM)
        time.sleep(0.05)
    assert process.wait(PATIENCE) == 5


def test_launch_script_has_nothing_that_kubernetes_or_the_template_would_expand():
    for expanded in ("$(", "$$", "{{", "{%", "{#"):
        assert expanded not in SCRIPT


@each_shell
def test_launch_attempt_and_stage_count_on_from_the_first_of_the_jobset(launch, shell):
    given = {"TPUKIT_FIRST_ATTEMPT": "5", "TPUKIT_FIRST_STAGE": "2", "TPUKIT_RESTARTS": "3"}
    process = launch(shell, "sh", "-c", "echo $TPUKIT_ATTEMPT $TPUKIT_STAGE", **given)
    assert process.communicate(timeout=PATIENCE)[0] == "8 5\n"


def packed(folder, files, parts):
    """Write an archive in parts to the folder, as a pod finds it."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    content = archive.getvalue()
    size = -(-len(content) // parts)
    folder.mkdir()
    for number in range(parts):
        (folder / f"code.{number:02}").write_bytes(content[number * size : (number + 1) * size])


@each_shell
def test_launch_code_is_unpacked_and_the_command_runs_in_it(launch, shell, tmp_path):
    packed(tmp_path / "code", {"train.py": "print('trained')", "lib/a.py": "x"}, parts=3)
    script = SCRIPT.replace("/tmp/code", str(tmp_path / "work"))
    process = launch(shell, sys.executable, "train.py", script=script, TPUKIT_CODE=str(tmp_path / "code"))
    assert process.communicate(timeout=PATIENCE)[0] == "trained\n"
    assert process.returncode == 0
    assert (tmp_path / "work" / "lib" / "a.py").read_text() == "x"


@each_shell
def test_launch_broken_code_ends_as_a_command_that_cannot_start(launch, shell, tmp_path):
    packed(tmp_path / "code", {"train.py": "print('trained')"}, parts=2)
    (tmp_path / "code" / "code.01").write_bytes(b"")
    script = SCRIPT.replace("/tmp/code", str(tmp_path / "work"))
    process = launch(shell, sys.executable, "train.py", script=script, TPUKIT_CODE=str(tmp_path / "code"))
    assert process.communicate(timeout=PATIENCE)[0] == ""
    assert process.returncode == 126


@each_shell
def test_launch_raises_the_limit_of_locked_memory_and_says_so_where_it_may_not(shell):
    """Values are in KiB; the limit of this process bounds what the shells may do."""
    hard = 4096

    def run(wanted):
        line = [*(["busybox", "sh"] if shell == "busybox" else [shell]), "-c", SCRIPT, "tpukit-launch"]
        limited = ["prlimit", "--memlock=65536:4194304", *line, "sh", "-c", "ulimit -l"]
        env = {**os.environ, **GIVEN, **({"TPUKIT_MEMLOCK": wanted} if wanted else {})}
        # Drop SYS_RESOURCE, as containers do, because root could raise any limit.
        dropped = ["setpriv", "--bounding-set=-sys_resource", "--inh-caps=-sys_resource", *limited]
        return subprocess.run(dropped, env=env, capture_output=True, text=True, timeout=PATIENCE, check=True)

    assert run("").stdout.split() == ["64"]
    raised = run(str(hard))
    assert (raised.stdout.split(), raised.stderr) == ([str(hard)], "")
    refused = run(str(2 * hard))
    assert refused.stdout.split() == ["64"]
    assert "tpukit: the limit of locked memory stays at 64 KiB, so the chips may refuse to open" in refused.stderr
