"""Untrusted code: it is contained, reported with the right reason, and the next job runs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tpukit.code_queue.child import Child, Limits, fresh_folder
from tpukit.jobs.reasons import Reason

LIMITS = Limits(memory=2**30, processes=64, file=50 * 2**20, result=100_000)


@pytest.fixture
def execute(tmp_path, monkeypatch):
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/secret/key.json")

    def run(code: str, timeout: float = 60.0, limits: Limits = LIMITS):
        child = Child(fresh_folder(tmp_path / "runs"), limits)
        try:
            return child.run(code, timeout)
        finally:
            child.close()

    yield run
    assert run("result = 6 * 7").result == "42"  # the worker still works after the test
    assert list((tmp_path / "runs").iterdir()) == []


def test_programs_that_jax_compiles_are_kept_for_later_jobs(tmp_path):
    code = "import os; folder = os.environ['JAX_COMPILATION_CACHE_DIR']; open(folder + '/x', 'a').write('x'); "
    for times in (1, 2):
        child = Child(fresh_folder(tmp_path / "runs"), LIMITS, cache=tmp_path / "cache")
        assert child.run(code + "result = len(open(folder + '/x').read())", 60.0).result == str(times)
        child.close()


def test_code_result_and_logger_are_as_documented(execute):
    done = execute("logger.info('hello'); print('printed'); result = f'Found {3} devices'")
    assert (done.reason, done.result) == (Reason.DONE, "Found 3 devices")
    assert "INFO hello" in done.logs
    assert "printed" in done.logs


@pytest.mark.parametrize("made", ["np.arange(10_000)", "{'all': np.arange(10_000)}"])
def test_array_of_any_size_is_in_the_result_with_all_its_numbers(execute, made):
    done = execute(f"import numpy as np\nresult = {made}")
    assert (done.reason, "..." in done.result, "7654" in done.result) == (Reason.DONE, False, True)


def test_numbers_of_an_array_are_in_the_result_with_all_their_digits(execute):
    assert "0.12345678901234" in execute("import numpy as np\nresult = np.array([0.12345678901234])").result


def test_array_that_is_too_large_for_a_result_fails_at_once_and_says_so(execute):
    done = execute("import numpy as np\nresult = np.zeros(50_000_000, dtype=np.int8)")
    assert done.reason is Reason.USER_ERROR and "50,000,000 numbers" in done.error


def test_code_without_result_gives_what_it_printed(execute):
    assert execute("print('only this')").result == "only this\n"


def test_code_that_raises_names_the_line_of_the_user_and_none_of_ours(execute):
    done = execute("def f():\n    raise ValueError('wrong shape')\nx = 1\nf()\n")
    assert done.reason is Reason.USER_ERROR
    assert 'File "<job>", line 4, in <module>\n    f()' in done.error
    assert "File \"<job>\", line 2, in f\n    raise ValueError('wrong shape')" in done.error
    assert "code_runner" not in done.error


def test_code_that_is_no_python_names_the_line(execute):
    done = execute("x = 1\nif x\n")
    assert done.reason is Reason.USER_ERROR
    assert "line 2" in done.error
    assert "SyntaxError" in done.error


@pytest.mark.parametrize(
    ("code", "reason", "said"),
    [
        ("while True: pass", Reason.TIMEOUT, "timeout of 1 s"),
        ("import time\nprint('x', flush=True)\ntime.sleep(1000)", Reason.TIMEOUT, "timeout of 1 s"),
        ("import sys\nwhile True: sys.stdout.write('y' * 100000)", Reason.TIMEOUT, "timeout of 1 s"),
        ("x = bytearray(4 * 2**30)", Reason.OUT_OF_MEMORY, "1 GiB"),
        ("x = []\nwhile True: x.append(bytearray(2**24))", Reason.OUT_OF_MEMORY, "1 GiB"),
        ("import sys; sys.exit(3)", Reason.USER_ERROR, "SystemExit: 3"),
        ("import os; os._exit(0)", Reason.USER_ERROR, "exited early (exit code 0)"),
        ("import os; os._exit(9)", Reason.USER_ERROR, "exited early (exit code 9)"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", Reason.USER_ERROR, "killed by SIGKILL"),
        ("import ctypes; ctypes.string_at(0)", Reason.USER_ERROR, "killed by SIGSEGV"),
        ("result = 'x' * 10**8", Reason.USER_ERROR, "100,000,000 bytes"),
        ("class R:\n  def __str__(self): raise OSError('no')\nresult = R()", Reason.USER_ERROR, "cannot be written"),
        ("open('/tmp/outside', 'w')", Reason.USER_ERROR, "PermissionError"),
        ("open('big', 'wb').write(b'x' * (60 * 2**20))", Reason.USER_ERROR, "File too large"),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else str(value),
)
def test_hostile_code_is_contained_and_reported_with_its_reason(execute, code, reason, said):
    done = execute(code, timeout=1.0 if reason is Reason.TIMEOUT else 60.0)
    assert done.reason is reason, done
    assert said in done.error
    assert len(done.logs) < 70_000


def test_fork_bomb_is_ended_with_all_that_it_made(execute):
    done = execute("import os\nwhile True:\n  try: os.fork()\n  except OSError: pass", timeout=30.0)
    assert done.reason in (Reason.USER_ERROR, Reason.TIMEOUT), done
    assert "processes" in done.error or "timeout" in done.error


def test_code_that_leaves_a_process_behind_leaves_none(execute):
    seconds = str(10_000 + os.getpid())  # a duration that no other test, here or in parallel, sleeps
    code = f"import subprocess\nsubprocess.Popen(['sleep', '{seconds}'], start_new_session=True)\nresult = 1"
    assert execute(code).reason is Reason.DONE
    commands = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if _readable(path)]
    assert f"sleep\0{seconds}\0".encode() not in commands


def test_code_that_closes_all_descriptors_still_gives_its_result(execute):
    done = execute("import os\nos.closerange(0, 100)\nresult = 'quiet'")
    assert (done.reason, done.result) == (Reason.DONE, "quiet")


def test_sys_exit_without_an_error_gives_the_result_so_far(execute):
    assert execute("import sys\nresult = 5\nsys.exit()").result == "5"


def test_output_that_is_no_text_and_much_of_it_shows_its_beginning_and_its_end(execute):
    code = (
        "import os\nos.write(1, b'\\xff\\xfestart')\nfor _ in range(300): os.write(1, b'z' * 1000)\nos.write(1, b'end')"
    )
    done = execute(code + "\nresult = 'ok'")
    assert done.logs.startswith("��start")
    assert done.logs.endswith("end")
    assert "bytes left out" in done.logs


def test_code_finds_no_credentials_no_network_and_no_files_of_others(execute, tmp_path):
    (tmp_path / "other-job").write_text("secret")
    done = execute(f"""
import json, os, socket, urllib.request
seen = {{}}
def attempt(name, call):
    try: call(); seen[name] = "open"
    except Exception as error: seen[name] = type(error).__name__
attempt("metadata", lambda: urllib.request.urlopen("http://169.254.169.254/computeMetadata/v1/", timeout=2))
attempt("loopback", lambda: socket.create_connection(("127.0.0.1", 22), timeout=2))
attempt("others", lambda: open({str(tmp_path / "other-job")!r}).read())
def readable(path):
    try: return b"secret/key" in open(path, "rb").read()
    except OSError: return False
seen["environments"] = [pid for pid in os.listdir("/proc") if pid.isdigit() and readable(f"/proc/{{pid}}/environ")]
attempt("report", lambda: open("../report.json", "w"))
attempt("scratch", lambda: open("mine", "w").write("x"))
seen["environment"] = sorted(name for name in os.environ if "GOOGLE" in name or "PROXY" in name.upper())
result = seen
""")
    seen = json.loads(done.result)
    assert seen.pop("scratch") == "open"
    assert seen.pop("environment") == []
    assert seen.pop("environments") == []
    assert set(seen.values()) <= {"URLError", "PermissionError", "OSError"}, seen


def test_code_has_no_network_where_namespaces_are_not_permitted(tmp_path, monkeypatch):
    """In a pod, the kernel refuses the namespaces; the other limits hold."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(
        "import sys\n"
        "if any('code_runner' in word for word in sys.orig_argv):\n"
        "    from tpukit.host import confinement\n"
        "    confinement.separate = lambda network: []\n"
    )
    monkeypatch.syspath_prepend(str(site))
    child = Child(fresh_folder(tmp_path / "runs"), LIMITS)
    code = "import socket\n"
    code += "a, b = socket.socketpair()\n"
    code += "for family in (socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK):\n"
    code += "  for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):\n"
    code += "    try: socket.socket(family, kind); raise SystemExit(f'{family} {kind}')\n"
    code += "    except PermissionError: pass\n"
    done = child.run(code + "result = 'none'", 60.0)
    layers = child.layers()
    child.close()
    assert (done.reason, done.result) == (Reason.DONE, "none"), done
    assert "network namespace" not in layers
    assert "no sockets" in layers


def test_link_in_place_of_the_result_is_not_followed(execute, tmp_path):
    (tmp_path / "secret.json").write_text('{"result": "secret"}')
    done = execute(f"import os\nos.symlink({str(tmp_path / 'secret.json')!r}, '.result.json')\nos._exit(0)")
    assert done.reason is Reason.USER_ERROR


def _readable(path: Path) -> bool:
    try:
        path.read_bytes()
    except OSError:
        return False
    return True
