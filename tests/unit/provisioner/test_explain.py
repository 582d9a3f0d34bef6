"""`tpu provisioner explain`: the provisioner's events on a JobSet, each once."""

from support.fake_cluster import FakeCluster
from tpukit.core.clock import ManualClock
from tpukit.provisioner.events import About, Events
from tpukit.provisioner.explain import _events


def test_event_that_was_told_of_the_pod_and_of_the_jobset_is_shown_once():
    clock = ManualClock()
    cluster = FakeCluster(clock)
    events = Events(cluster, clock)
    about = About("research", "train", "uid-1", "train-slice-0-0", "uid-2")
    events.tell(about, "NodePoolImpossible", "no zone has v4-16")
    clock.sleep(60)
    events.tell(about, "NodePoolReady", "pool slice-1 is ready")
    assert len(cluster.list("Event", "research")) == 3
    assert [said[1:] for said in _events(cluster, "research", "train")] == [
        ("NodePoolImpossible", "no zone has v4-16"),
        ("NodePoolReady", "pool slice-1 is ready"),
    ]
