"""Features that a kubelet needs beyond the local place: a memory limit, times in the log, a view of the file system."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from support.waiting import until
from tpukit.places.local import processes as pods
from tpukit.places.local.processes import Mount, Phase, Pod, PodState

PYTHON = sys.executable


def finished(folder: Path) -> PodState:
    return until(lambda: (state := pods.status(folder)).phase is not Phase.RUNNING and state)


def run(home: Path, code: str, **options: object) -> PodState:
    pod = Pod(home / "pod", (PYTHON, "-c", code), {"PATH": "/usr/bin:/bin"}, home, **options)  # type: ignore[arg-type]
    pods.start([pod])
    return finished(pod.folder)


def test_memory_above_limit_ends_as_out_of_memory(home: Path):
    state = run(home, "import time; held = bytearray(200 << 20); time.sleep(60)", memory=100 << 20)
    assert (state.code, state.out_of_memory, state.signalled) == (137, True, False)


def test_memory_counts_every_process_of_the_pod(home: Path):
    code = "import os, time; os.fork(); held = bytearray(60 << 20); time.sleep(60)"
    state = run(home, code, memory=100 << 20)
    assert (state.code, state.out_of_memory) == (137, True)


def test_memory_that_processes_share_counts_once(home: Path):
    code = "import os, time; held = bytearray(60 << 20); pid = os.fork(); time.sleep(0.5); pid and os.wait()"
    # A process may end between two looks; the shared memory then counts as the other process's, 90 MiB.
    state = run(home, code, memory=115 << 20)
    assert (state.code, state.out_of_memory) == (0, False)


def test_memory_counts_files_that_are_memory(home: Path):
    (home / "volume").mkdir()
    code = f"import time; open({str(home / 'volume' / 'x')!r}, 'wb').write(bytes(150 << 20)); time.sleep(60)"
    state = run(home, code, memory=100 << 20, memory_folders=(home / "volume",))
    assert (state.code, state.out_of_memory) == (137, True)


def test_memory_counts_a_file_that_is_mapped_once(home: Path):
    (home / "volume").mkdir()
    # Write piece by piece, because memory held by Python would also count, depending on when the shim looks.
    code = f"""import mmap, time
with open({str(home / "volume" / "x")!r}, "wb+") as file:
    file.truncate(60 << 20)
    held = mmap.mmap(file.fileno(), 60 << 20)
    for piece in range(60):
        held.write(b"x" * (1 << 20))
    time.sleep(0.5)"""
    state = run(home, code, memory=100 << 20, memory_folders=(home / "volume",))
    assert (state.code, state.out_of_memory) == (0, False)


def test_stamped_log_has_a_time_on_every_line_and_long_lines_in_parts(home: Path):
    run(home, "print('one'); print(); print('x' * 20000); print('no newline', end='')", stamped=True)
    lines = (home / "pod" / "log").read_bytes().decode().splitlines()
    found = [re.fullmatch(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z) stdout ([FP]) (.*)", line) for line in lines]
    assert all(found)
    assert [(match[2], match[3][:20], len(match[3])) for match in found if match] == [
        ("F", "one", 3),
        ("F", "", 0),
        ("P", "x" * 20, 16384),
        ("F", "x" * 20, 3616),
        ("P", "no newline", 10),
    ]


def test_stamped_log_is_whole_when_the_pod_is_killed(home: Path):
    code = "import os, sys\nfor i in range(5000): print(i)\nsys.stdout.flush()\nos.kill(os.getpid(), 9)"
    assert run(home, code, stamped=True).code == 137
    lines = (home / "pod" / "log").read_text().splitlines()
    assert [line.split()[3] for line in lines] == [str(i) for i in range(5000)]


def test_stamped_log_that_is_long_goes_on_in_another_file_with_no_line_lost_or_divided(home: Path):
    # The program waits now and then for its printed lines, because data read at once goes to one file.
    code = f"""import pathlib, time
def written(): return "".join(log.read_text() for log in pathlib.Path({str(home / "pod")!r}).glob("log*"))
for i in range(200):
    print(i, "x" * 100, flush=True)
    while i % 10 == 0 and f"F {{i}} x" not in written(): time.sleep(0.01)
"""
    run(home, code, stamped=True, log_bytes=4000)
    files = pods.log_files(home / "pod")
    assert [file.name for file in files][:3] == ["log", "log.1", "log.2"]
    assert [pods.log_number(file) for file in files] == list(range(len(files)))
    assert all(file.stat().st_size >= 4000 for file in files[:-1])
    lines = [line for file in files for line in file.read_text().splitlines()]
    assert [line.split()[3] for line in lines] == [str(number) for number in range(200)]
    assert pods.tail(home / "pod")[-1] == lines[-1]


@pytest.fixture
def volume(home: Path) -> Path:
    (home / "empty").mkdir()
    if not pods.can_mount(home / "empty"):
        pytest.fail("this system lets nobody make mount namespaces: allow user namespaces, or run as root")
    folder = home / "volume"
    folder.mkdir()
    (folder / "file").write_text("inside")
    return folder


def test_mount_shows_a_folder_where_none_is_and_leaves_the_machine_as_it_was(home: Path, volume: Path):
    target = "/tpukit-test-nowhere/deep/data"
    code = f"import pathlib; p = pathlib.Path({target!r}); print((p / 'file').read_text()); (p / 'new').write_text('x')"
    state = run(home, code, mounts=(Mount(volume, target),))
    assert (state.code, state.error) == (0, "")
    assert pods.tail(home / "pod") == ["inside"]
    assert (volume / "new").read_text() == "x"
    assert not Path("/tpukit-test-nowhere").exists()


def test_mount_inside_a_folder_of_the_machine_keeps_what_is_beside_it(home: Path, volume: Path):
    code = "import os; print(os.path.exists('/etc/passwd'), os.listdir('/etc/tpukit-test'))"
    run(home, code, mounts=(Mount(volume, "/etc/tpukit-test"),))
    assert pods.tail(home / "pod") == ["True ['file']"]
    assert not Path("/etc/tpukit-test").exists()


def test_mount_through_a_symlink_lands_where_it_points(home: Path, volume: Path):
    if not Path("/var/run").is_symlink():
        pytest.fail("/var/run is no link here: name another one in this test")
    code = "print(open('/var/run/secrets/tpukit-test/file').read(), open('/run/secrets/tpukit-test/file').read())"
    run(home, code, mounts=(Mount(volume, "/var/run/secrets/tpukit-test"),))
    assert pods.tail(home / "pod") == ["inside inside"]


def test_mount_inside_a_mount_is_made_in_the_outer_one(home: Path, volume: Path):
    outer = home / "outer"
    outer.mkdir()
    code = "open('/tpukit-outer/beside', 'w').close(); print(open('/tpukit-outer/in/file').read())"
    run(home, code, mounts=(Mount(outer, "/tpukit-outer"), Mount(volume, "/tpukit-outer/in")))
    assert pods.tail(home / "pod") == ["inside"]
    assert sorted(path.name for path in outer.iterdir()) == ["beside", "in"]


def test_mount_read_only_refuses_to_write(home: Path, volume: Path):
    state = run(home, "open('/tpukit-data/new', 'w')", mounts=(Mount(volume, "/tpukit-data", read_only=True),))
    assert state.code == 1
    assert "Read-only file system" in "".join(pods.tail(home / "pod"))


def test_mount_of_a_missing_source_says_which(home: Path, volume: Path):
    state = run(home, "pass", mounts=(Mount(home / "missing", "/tpukit-data"),))
    assert state.code == 128
    assert str(home / "missing") in state.error


def test_mounted_pod_dies_with_its_shim(home: Path, volume: Path):
    pod = Pod(home / "pod", ("/bin/sleep", "60"), {}, home, mounts=(Mount(volume, "/tpukit-data"),))
    pods.start([pod])
    members = pods.members(pod.folder)
    assert members
    pods.lose(pod.folder)
    until(lambda: not Path(f"/proc/{members[0]}").exists())
    assert pods.status(pod.folder).phase is Phase.LOST
