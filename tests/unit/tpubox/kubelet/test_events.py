"""Events of a kubelet about its pods: counted, and not written each time."""

from __future__ import annotations

from support.agent_api import FakeApi
from tpubox.kubelet.pod_events import PodEvents
from tpukit.core.clock import ManualClock

POD = {"metadata": {"name": "p", "namespace": "default", "uid": "u"}, "spec": {"nodeName": "n"}}


def test_event_that_is_said_again_is_counted_and_written_ever_less_often():
    api = FakeApi()
    events = PodEvents(api, ManualClock())
    for _ in range(9):
        events.warn(POD, "FailedMount", "it is not there")
    (event,) = api.list("Event")
    assert (event["count"], event["reason"], event["message"]) == (8, "FailedMount", "it is not there")
    assert event["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": "p",
        "namespace": "default",
        "uid": "u",
    }
    assert len([call for call in api.calls if call[0] == "patch"]) == 3


def test_event_of_another_message_is_another_one():
    api = FakeApi()
    events = PodEvents(api, ManualClock())
    events.warn(POD, "FailedMount", "one")
    events.warn(POD, "FailedMount", "two")
    assert sorted(one["message"] for one in api.list("Event")) == ["one", "two"]


def test_pod_that_is_gone_is_not_remembered():
    api = FakeApi()
    events = PodEvents(api, ManualClock())
    events.warn(POD, "FailedMount", "one")
    events.forget("u")
    assert not events._said
