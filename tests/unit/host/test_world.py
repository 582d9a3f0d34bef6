"""The identity of a host, from its environment alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpukit.host.world import World, read


def pod(*, hosts: int, worker: int, slices: int, slice_index: int) -> dict[str, str]:
    return {
        "TPU_WORKER_HOSTNAMES": ",".join(f"host-{number}" for number in range(hosts)),
        "TPU_WORKER_ID": str(worker),
        "MEGASCALE_NUM_SLICES": str(slices),
        "MEGASCALE_SLICE_ID": str(slice_index),
        "MEGASCALE_COORDINATOR_ADDRESS": "host-0",
    }


def test_read_empty_environment_is_the_only_host():
    assert read({}) == World(index=0, hosts=1, slice_index=0, slices=1)


@given(slices=st.integers(1, 6), hosts=st.integers(1, 6))
def test_read_all_pods_of_a_job_number_its_hosts_once_slice_by_slice(slices, hosts):
    worlds = [
        read(pod(hosts=hosts, worker=worker, slices=slices, slice_index=slice_index))
        for slice_index in range(slices)
        for worker in range(hosts)
    ]
    assert [world.index for world in worlds] == list(range(slices * hosts))
    assert {world.hosts for world in worlds} == {slices * hosts}
    assert [world.slice_index for world in worlds] == [number // hosts for number in range(slices * hosts)]


def test_read_empty_megascale_names_mean_one_slice():
    names = {"MEGASCALE_NUM_SLICES": "", "MEGASCALE_SLICE_ID": "", "MEGASCALE_COORDINATOR_ADDRESS": ""}
    world = read({**pod(hosts=2, worker=1, slices=1, slice_index=0), **names})
    assert (world.index, world.hosts, world.slices) == (1, 2, 1)


def test_read_single_host_pod_on_gke_is_one_process():
    assert read({"TPU_WORKER_HOSTNAMES": "localhost", "TPU_WORKER_ID": "0"}).hosts == 1


def test_read_ours():
    world = read(
        {
            "TPUKIT_JOB": "pretrain",
            "TPUKIT_ATTEMPT": "3",
            "TPUKIT_STAGE": "2",
            "TPUKIT_WORKDIR": "gs://bucket/run",
            "TPUKIT_HEARTBEAT": "10",
            "TPUKIT_PROGRESS": "/run/progress",
        }
    )
    assert (world.job, world.attempt, world.stage, world.workdir) == ("pretrain", 3, 2, "gs://bucket/run")
    assert (world.heartbeat, world.progress) == (10, "/run/progress")


@pytest.mark.parametrize("name", ["TPU_WORKER_ID", "MEGASCALE_NUM_SLICES", "TPUKIT_ATTEMPT", "TPUKIT_HEARTBEAT"])
@pytest.mark.parametrize("text", ["-1", "two", "1.5", "²", " 1"])
def test_read_something_that_is_no_number_is_named(name, text):
    with pytest.raises(ValueError, match=name):
        read({name: text})


def test_read_host_outside_its_slice_is_refused():
    with pytest.raises(ValueError, match="disagree"):
        read(pod(hosts=2, worker=2, slices=1, slice_index=0))
    with pytest.raises(ValueError, match="disagree"):
        read(pod(hosts=1, worker=0, slices=2, slice_index=2))
