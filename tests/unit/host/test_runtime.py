"""A single host: its imports, its exit codes, and a full disk."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.waiting import PATIENCE

TOOLS = Path(__file__).parents[3] / "tools"


def run(program: str, workdir: Path) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(TOOLS), "TPUKIT_WORKDIR": str(workdir)}
    env["TPUKIT_PROGRESS"] = str(workdir / "progress")
    return subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=PATIENCE)


def test_import_loads_nothing_heavy_and_nothing_else_of_tpukit(tmp_path):
    done = run(
        """
import sys
import tpukit.host
heavy = {"jax", "numpy", "orbax", "grain", "tensorboardX", "google", "etils"} & set(sys.modules)
ours = {name for name in sys.modules if name.startswith("tpukit.") and not name.startswith("tpukit.host")}
assert not heavy and not ours, (heavy, ours)
""",
        tmp_path,
    )
    assert done.returncode == 0, done.stderr


def test_host_alone_remembers_sigterm_until_asked_and_leaves_as_told(tmp_path):
    done = run(
        """
import os, signal
from tpukit import host as tpu
me = tpu.start()
assert me.first and not me.leaving(1)
os.kill(os.getpid(), signal.SIGTERM)
assert me.leaving(2)
me.leave()
""",
        tmp_path,
    )
    assert done.returncode == 143, done.stderr


def test_report_and_scalars_on_a_full_disk_warn_once_each_and_training_goes_on(tmp_path):
    # A file size limit stands in for a full disk: writes fail half-way in both cases.
    done = run(
        """
import resource, signal
from tpukit import host as tpu
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
me = tpu.start()
me.report(step=0, loss=1.0)
resource.setrlimit(resource.RLIMIT_FSIZE, (10, resource.RLIM_INFINITY))
for step in range(1, 500):
    me.report(step=step, loss=1.0)
    me.scalars.write(step, **{f"loss-{n}": 1.0 for n in range(20)})
    me.flush()
me.close()
print("trained to the end")
""",
        tmp_path,
    )
    assert (done.returncode, done.stdout) == (0, "trained to the end\n"), done.stderr
    assert done.stderr.count("training continues") == 2
    assert '"step": 0' in (tmp_path / "progress").read_text(), "what was written before is still whole"


def test_report_prints_one_line(tmp_path):
    done = run("from tpukit import host as tpu; tpu.start().report(step=1, log='step 1  loss 2.0')", tmp_path)
    assert done.stdout == "step 1  loss 2.0\n"


RAISING = """
from tpukit.host import runtime

runtime._exit_without_peers_after_an_error()
try:
    raise {error}
except Exception as cause:
    raise {outer}
"""
GLOO = "UNKNOWN: Gloo AllGather failed: [gloo/transport/tcp/pair.cc:538] Read error: Connection reset by peer"
BARRIER = "INTERNAL: Barrier failed because: task is set to ERROR: UNAVAILABLE: Task 2 heartbeat timeout."
LOST_PEER = 134


@pytest.mark.parametrize(
    ("error", "outer", "code"),
    [
        (f"ValueError({GLOO!r})", "cause", LOST_PEER),
        (f"RuntimeError({BARRIER!r})", "cause", LOST_PEER),
        (f"ValueError({GLOO!r})", "RuntimeError('step 7 failed') from cause", LOST_PEER),
        ("ValueError('bad shape')", "cause", 1),
        ("ConnectionResetError('Connection reset by peer')", "cause", 1),
    ],
    ids=["gloo", "barrier", "raised from it", "program", "connection of the program"],
)
def test_start_program_that_raised_says_with_its_exit_code_whether_it_lost_a_peer(error, outer, code, tmp_path):
    """JobSet decides from the exit code alone which budget is charged."""
    ended = run(RAISING.format(error=error, outer=outer), tmp_path)
    assert ended.returncode == code
    assert "Traceback" in ended.stderr
