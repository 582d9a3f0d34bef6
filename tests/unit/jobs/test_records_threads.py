"""Many threads can read records right after the import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import tpukit

PATH = str(Path(tpukit.__file__).parents[1])
# msgspec (0.22) resolves a type's annotations in Python when it first reads one. Other threads that run meanwhile
# find the type half described, and the process crashes: 5 of 30 starts with sixteen threads did.
SCRIPT = """
import sys, msgspec
from tpukit.jobs import records; from tpukit.kernel import store
described = []
def called(frame, event, argument):
    if event == "call" and frame.f_code.co_name == "get_class_annotations":
        described.append(frame.f_back.f_code.co_name)
sys.setprofile(called)
for kind in (records.Job, records.Attempt, records.Outcome, store.Event, store.Holder, store.Lease):
    msgspec.json.Decoder(kind)
sys.setprofile(None)
assert not described, described
"""


def test_what_records_are_made_of_is_known_before_a_second_thread_can_read_one():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, env={"PYTHONPATH": PATH})
    assert done.returncode == 0, done.stderr
