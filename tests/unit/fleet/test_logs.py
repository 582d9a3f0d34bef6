"""`tpu fleet logs`: printed once, followed to the end of the program, and across a recreated TPU VM."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from support.fleet_users import User, users
from support.fleet_world import Program, World
from tpukit.cli import context, fleet_logs
from tpukit.core.clock import ManualClock

TPU = "tpu-us-central1-a-0"


class Watch(ManualClock):
    """A clock that runs the next event whenever a command sleeps."""

    def __init__(self, *events: Callable[[], object]) -> None:
        super().__init__()
        self._events = list(events)

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        assert self._events, "the command still waits although nothing more happens"
        self._events.pop(0)()


@pytest.fixture
def world(tmp_path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


@pytest.fixture
def ada(world, tmp_path, monkeypatch) -> User:
    (ada,) = users(world, tmp_path, monkeypatch, "ada")
    data = tmp_path / "data.jsonl"
    data.write_text('{"n": 1}\n')
    words = f"--zones us-central1-a --gcs-bucket {tmp_path}/b --dataset {data} --program json:loads --create-tpus"
    ada.run(f"deploy {words}")
    return ada


def program(world: World) -> Program:
    return next(iter(world.hosts.running().values()))


def test_logs_print_the_output_of_a_worker_once(ada, world):
    program(world).log = b"one\ntwo\n"
    assert ada.type(f"logs {TPU}").stdout == "one\ntwo\n"


def test_logs_followed_print_what_comes_and_end_with_the_program(ada, world, monkeypatch):
    running = program(world)

    def writes(text: bytes, code: int | None = None) -> Callable[[], None]:
        def write() -> None:
            running.log += text
            running.code = code

        return write

    running.log = b"one\n"
    clock = Watch(writes(b""), writes(b"two\n"), writes(b"three\n", code=3))
    monkeypatch.setattr(context, "CLOCK", clock)
    done = ada.type(f"logs -f {TPU}")
    assert (done.exit_code, done.stdout) == (0, "one\ntwo\nthree\n"), done.output
    assert f"{TPU}: the program ended with exit code 3" in done.stderr


def test_logs_followed_wait_for_a_tpu_vm_that_cannot_be_reached_and_say_so_once(ada, world, monkeypatch):
    running = program(world)
    running.log = b"one\n"
    (address,) = world.hosts.programs

    def back() -> None:
        world.hosts.silent.clear()
        running.code = 0

    world.hosts.silent.add(address)
    monkeypatch.setattr(context, "CLOCK", Watch(lambda: None, back))
    done = ada.type(f"logs --follow {TPU}")
    assert (done.exit_code, done.stdout) == (0, "one\n"), done.output
    assert done.stderr.count("no route to host") == 1


def test_logs_followed_before_the_first_launch_say_what_launches_a_program(world, tmp_path, monkeypatch):
    (ada,) = users(world, tmp_path, monkeypatch, "ada")
    ada.run("create --zones us-central1-a --workers-per-zone 1")
    monkeypatch.setattr(context, "CLOCK", Watch(lambda: None, lambda: None))
    done = ada.type(f"logs -f {TPU}")
    assert done.stderr.count("no program was launched on this TPU VM; `tpu fleet deploy` launches one") == 1


def test_logs_of_a_tpu_vm_that_the_fleet_does_not_have_name_the_fleet_and_the_command_that_lists_them(ada):
    done = ada.type("logs nosuch")
    assert "Fleet `ada` has no TPU VM `nosuch`" in str(done.exception)
    assert "tpu fleet status" in str(done.exception)


def test_flags_of_fleets_are_taken_with_underscores_too(ada, world, tmp_path):
    data = tmp_path / "data.jsonl"
    words = f"--gcs_bucket {tmp_path}/b --workers_per_zone 1 --tpu_type v3-8 --dataset {data} --program json:loads"
    ada.run(f"deploy --zones us-central1-a {words} --create_tpus --skip_dataset --max_samples 10")
    assert list(world.cloud.made) == [TPU]
    assert fleet_logs.POLL_SECONDS
