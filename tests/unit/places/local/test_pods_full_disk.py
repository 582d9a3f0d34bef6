"""Pods on a disk that is full."""

from __future__ import annotations

from support.cramped import on_small_disk

LOOK = """
import json, os, sys, time
from pathlib import Path
from tpukit.places.local import processes as pods
folder = Path(sys.argv[1]) / "pod"
def start(script):
    pods.start([pods.Pod(folder, ("sh", "-c", script), {"PATH": os.environ["PATH"]}, folder.parent)])
def ended():
    due = time.monotonic() + 600
    while (state := pods.status(folder)).phase is pods.Phase.RUNNING and time.monotonic() < due:
        time.sleep(0.02)
    return {"phase": state.phase, "code": state.code, "disk_full": state.disk_full}
"""
FULL_DISK = LOOK + "start('yes > filler; exit 1'); print(json.dumps(ended()))"
STOP_ON_FULL_DISK = (
    LOOK
    + """
start('yes > filler; sleep 60')
filler = folder.parent / "filler"
while not filler.exists() or filler.stat().st_size < 100_000: time.sleep(0.02)
time.sleep(0.3)
pods.stop(folder, 5)
print(json.dumps(ended()))
"""
)


def test_disk_full_the_end_is_recorded_all_the_same(home):
    done = on_small_disk(home / "disk", 256, FULL_DISK)
    assert done["code"] == 1
    assert done["phase"] == "ended"
    assert done["disk_full"] is done["full"]


def test_disk_full_pod_can_be_stopped(home):
    assert on_small_disk(home / "disk", 256, STOP_ON_FULL_DISK)["phase"] == "ended"
