"""The life of pods on the node agent, against an API server that refuses what a real one refuses."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.agent_world import ZONE, World, with_cpu_node
from tpubox.kubelet.archive import printed
from tpukit.places.local import processes as pods

world = pytest.fixture(name="world")(with_cpu_node)


def test_pod_that_succeeds_is_reported_running_then_succeeded(world: World):
    go = world.shared / "go"
    world.shell(f"echo hello; until [ -e {go} ]; do sleep 0.05; done")
    world.phase("Running")
    go.touch()
    status = world.phase("Succeeded")
    ended = status["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (0, "Completed")
    assert [phase for _, phase in world.api.phases] == ["Running", "Succeeded"]
    assert {one["type"]: one["status"] for one in status["conditions"]}["Ready"] == "False"
    assert status["podIP"].startswith("10.")
    assert world.log() == "hello\n"


def test_pod_that_runs_is_ready(world: World):
    world.shell("exec sleep 60")
    status = world.phase("Running")
    assert {one["type"]: one["status"] for one in status["conditions"]}["Ready"] == "True"
    assert status["containerStatuses"][0]["ready"]


@pytest.mark.parametrize(
    ("script", "code", "reason"),
    [
        ("exit 7", 7, "Error"),
        ("kill -ABRT $$$$", 134, "Error"),
        ("kill -KILL $$$$", 137, "Error"),
    ],
)
def test_pod_that_fails_has_its_code(world: World, script: str, code: int, reason: str):
    world.shell(script)
    ended = world.phase("Failed")["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (code, reason)


def test_pod_with_a_command_that_is_not_there_fails_to_start(world: World):
    world.pod("/no/such/program")
    ended = world.phase("Failed")["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (128, "StartError")
    assert "/no/such/program: No such file" in ended["message"]


@pytest.mark.parametrize("context", [{}, {"readOnlyRootFilesystem": True}])
def test_working_folder_that_is_not_there_is_made_in_the_pod_alone(world: World, context: dict[str, bool]):
    world.shell("pwd", workingDir="/folder/of/the/image", securityContext=context)
    world.phase("Succeeded")
    assert world.log() == "/folder/of/the/image\n"
    assert not Path("/folder").exists()


def test_pod_above_its_memory_limit_is_killed_for_it(world: World):
    code = "held = bytearray(200 << 20); import time; time.sleep(60)"
    world.pod("python", "-c", code, resources={"limits": {"memory": "100Mi"}})
    ended = world.phase("Failed")["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (137, "OOMKilled")


@pytest.mark.parametrize(
    ("medium", "reason"), [({"medium": "Memory"}, "OOMKilled"), ({}, "Completed")], ids=["memory", "disk"]
)
def test_what_is_written_to_a_volume_in_memory_counts_to_the_limit(world: World, medium, reason: str):
    spec = {"volumes": [{"name": "m", "emptyDir": medium}]}
    mounts = [{"name": "m", "mountPath": "/fast"}]
    script = "head -c 200000000 /dev/zero > /fast/x; sleep 1"
    world.shell(script, spec=spec, volumeMounts=mounts, resources={"limits": {"memory": "100Mi"}})
    ended = world.phase("Succeeded", "Failed")["containerStatuses"][0]["state"]["terminated"]
    assert ended["reason"] == reason


def test_last_words_of_a_failed_container_are_its_message_where_asked_for(world: World):
    world.shell("echo it is broken; exit 3", terminationMessagePolicy="FallbackToLogsOnError")
    ended = world.phase("Failed")["containerStatuses"][0]["state"]["terminated"]
    assert ended["message"] == "it is broken"


def test_termination_message_file_is_the_message(world: World):
    world.shell("echo -n done with it > /dev/termination-log")
    ended = world.phase("Succeeded")["containerStatuses"][0]["state"]["terminated"]
    assert ended["message"] == "done with it"


def test_image_that_cannot_be_pulled_is_waited_for(world: World):
    world.pod("true", image="eu-docker.pkg.dev/p/r/does-not-exist:1")
    (first,) = world.until(lambda: world.status().get("containerStatuses"))
    assert first["state"]["waiting"]["reason"] == "ErrImagePull"
    assert world.status()["phase"] == "Pending"
    world.until(lambda: world.container()["state"]["waiting"]["reason"] == "ImagePullBackOff")
    assert world.events("Failed")[0]["message"].startswith(
        'Failed to pull image "eu-docker.pkg.dev/p/r/does-not-exist:1"'
    )
    assert world.events("BackOff")[0]["message"] == 'Back-off pulling image "eu-docker.pkg.dev/p/r/does-not-exist:1"'


def test_config_map_that_comes_later_lets_the_pod_start(world: World):
    world.shell("echo $COLOUR", env=[_from("COLOUR", "configMapKeyRef", "paint", "colour")])
    world.until(lambda: world.status().get("containerStatuses"))
    waiting = world.container()["state"]["waiting"]
    assert waiting == {"reason": "CreateContainerConfigError", "message": 'configmap "paint" not found'}
    assert world.events("Failed")[0]["message"] == 'Error: configmap "paint" not found'
    world.api.put("ConfigMap", {"metadata": {"name": "paint"}, "data": {"colour": "green"}})
    world.phase("Succeeded")
    assert world.log() == "green\n"


def test_restart_policy_on_failure_starts_again_and_keeps_the_earlier_log(world: World):
    script = "if [ -e /data/again ]; then echo second; else touch /data/again; echo first; exit 1; fi"
    spec = {"restartPolicy": "OnFailure", "volumes": [{"name": "data", "emptyDir": {}}]}
    world.shell(script, spec=spec, volumeMounts=[{"name": "data", "mountPath": "/data"}])
    world.phase("Succeeded")
    assert world.container()["restartCount"] == 1
    assert world.container()["lastState"]["terminated"]["exitCode"] == 1
    assert (world.log(), world.log(query="?previous=true")) == ("second\n", "first\n")


def test_container_that_crashes_again_waits_longer_before_it_is_started(world: World):
    world.shell("exit 1", spec={"restartPolicy": "Always"})
    world.until(lambda: "waiting" in world.status().get("containerStatuses", [{"state": {}}])[0]["state"])
    assert world.container()["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert world.container()["restartCount"] == 1
    assert world.status()["phase"] == "Running"
    assert world.events("BackOff")[0]["message"].startswith(
        "Back-off restarting failed container main in pod p_default("
    )


def test_init_containers_run_in_order_before_the_main_one(world: World):
    mount = [{"name": "data", "mountPath": "/data"}]
    inits = [
        {"name": name, "image": "i", "command": ["/bin/sh", "-c", f"echo {name} >> /data/order"], "volumeMounts": mount}
        for name in ("one", "two")
    ]
    spec = {"initContainers": inits, "volumes": [{"name": "data", "emptyDir": {}}]}
    world.shell("cat /data/order", spec=spec, volumeMounts=mount)
    status = world.phase("Succeeded")
    assert world.log() == "one\ntwo\n"
    assert [one["state"]["terminated"]["exitCode"] for one in status["initContainerStatuses"]] == [0, 0]


def test_init_container_that_fails_fails_the_pod_and_the_main_one_never_starts(world: World):
    world.shell("echo never", spec={"initContainers": [{"name": "i", "image": "i", "command": ["false"]}]})
    status = world.phase("Failed")
    assert status["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 1
    assert "terminated" not in status["containerStatuses"][0]["state"]


def test_sidecar_starts_before_and_ends_after_the_main_container(world: World):
    up = world.shared / "up"
    script = f"trap 'echo bye; exit 0' TERM; echo up; touch {up}; while :; do sleep 0.1; done"
    sidecar = {"name": "side", "image": "i", "command": ["/bin/sh", "-c", script], "restartPolicy": "Always"}
    world.shell(f"until [ -e {up} ]; do sleep 0.05; done", spec={"initContainers": [sidecar]})
    world.phase("Succeeded")
    assert world.log(container="side") == "up\nbye\n"


def test_delete_tells_the_first_process_and_reports_its_code_before_the_pod_is_gone(world: World):
    world.listening("trap 'exit 143' TERM")
    world.api.delete_pod("p")
    world.until(world.gone)
    assert world.api.phases[-1] == ("p", "Failed")


def test_delete_kills_what_does_not_leave_within_its_grace(world: World):
    world.listening("trap '' TERM", spec={"terminationGracePeriodSeconds": 1})
    world.api.delete_pod("p")
    world.until(world.gone)
    assert world.api.phases[-1] == ("p", "Failed")


def test_delete_leaves_what_the_pod_printed_with_its_labels_and_zone(world: World, home: Path):
    world.shell("echo one; echo two")
    world.phase("Succeeded")
    (before,) = printed(home / "agent")
    text = before.paths[0].read_text()
    world.api.delete_pod("p")
    world.until(lambda: not list((home / "agent" / "pods").iterdir()))
    (after,) = printed(home / "agent")
    assert after == before
    assert after.paths[1].read_text() == text
    assert [line.split(" ", 3)[3] for line in text.splitlines()] == ["one", "two"]
    assert after.node_labels["topology.kubernetes.io/zone"] == ZONE


def test_forced_delete_leaves_no_process(world: World):
    world.shell("echo $$$$; exec sleep 60")
    world.phase("Running")
    pid = int(world.until(world.log))
    world.api.delete_pod("p", grace=0)
    world.until(lambda: not Path(f"/proc/{pid}").exists())


def test_pod_of_another_node_is_left_alone(world: World):
    world.shell("true", node="kwok-node-1")
    world.shell("true", name="q")
    world.phase("Succeeded", name="q")
    assert world.status("p") == {}


def test_agent_killed_and_started_again_finds_the_same_processes(world: World, home: Path):
    gate = world.shared / "gate"
    world.shell(f"echo $$$$; until [ -e {gate} ]; do sleep 0.05; done; echo end; exit 5")
    world.phase("Running")
    pid = world.until(world.log)
    world.stop()  # pods are not its children, so this is as abrupt to them as a kill
    again = World(home, world.api)
    try:
        assert again.log() == pid
        gate.touch()
        ended = again.phase("Failed")["containerStatuses"][0]["state"]["terminated"]
        assert ended["exitCode"] == 5
        assert again.log() == f"{pid}end\n"
        assert again.container()["restartCount"] == 0
    finally:
        again.api.delete("Pod", "p", "default", grace=0)
        again.until(lambda: not list((home / "agent" / "pods").iterdir()))
        again.close()


def test_pod_whose_processes_vanished_with_their_shim_fails(world: World):
    world.shell("exec sleep 60")
    world.phase("Running")
    run = next((world.home / "agent" / "pods").glob("*/main/0"))
    os.kill(pods.status(run).shim, 9)
    ended = world.phase("Failed")["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (137, "ContainerStatusUnknown")


def test_pod_that_the_agent_knows_nothing_of_but_ran_fails_and_is_not_run_twice(world: World):
    world.stop()
    began = {"name": "main", "image": "i", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
    world.shell("touch ran-again; sleep 60")
    world.api.patch(
        "Pod", "p", {"status": {"phase": "Running", "containerStatuses": [began]}}, "default", part="status"
    )
    again = World(world.home, world.api)
    try:
        status = again.phase("Failed")
        assert status["reason"] == "ContainerStatusUnknown"
        assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137
        assert not list((world.home / "agent" / "pods").glob("*/main"))
    finally:
        again.api.delete("Pod", "p", "default", grace=0)
        again.until(lambda: not list((world.home / "agent" / "pods").iterdir()))
        again.close()


def test_pod_that_began_and_left_an_empty_folder_is_not_run_twice_either(world: World):
    world.stop()
    began = {"name": "main", "image": "i", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
    pod = world.shell("sleep 60")
    world.api.patch(
        "Pod", "p", {"status": {"phase": "Running", "containerStatuses": [began]}}, "default", part="status"
    )
    folder = world.home / "agent" / "pods" / f"default_p_{pod['metadata']['uid']}"
    folder.mkdir(parents=True)
    again = World(world.home, world.api)
    try:
        assert again.phase("Failed")["reason"] == "ContainerStatusUnknown"
    finally:
        again.api.delete("Pod", "p", "default", grace=0)
        again.until(lambda: not folder.exists())
        again.close()


def test_pod_deleted_while_the_agent_was_away_leaves_nothing(world: World):
    world.shell("echo $$$$; exec sleep 60")
    world.phase("Running")
    pid = int(world.until(world.log))
    world.stop()
    world.api.delete("Pod", "p", "default", grace=0)
    again = World(world.home, world.api)
    try:
        again.until(lambda: not Path(f"/proc/{pid}").exists() and not list((world.home / "agent" / "pods").iterdir()))
    finally:
        again.close()


def test_own_active_deadline_ends_the_pod(world: World):
    world.shell("trap 'exit 3' TERM; while :; do sleep 0.1; done", spec={"activeDeadlineSeconds": 3})
    status = world.phase("Failed")
    assert status["reason"] == "DeadlineExceeded"
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3


def test_first_process_that_does_not_listen_takes_the_whole_grace_and_is_killed(world: World):
    spec = {"activeDeadlineSeconds": 1, "terminationGracePeriodSeconds": 2}
    world.pod("python", "-c", "import time; time.sleep(1000)", spec=spec)
    ended = world.phase("Failed")["containerStatuses"][0]["state"]["terminated"]
    assert ended["exitCode"] == 137


@pytest.mark.parametrize("name", ["HOME", "PATH", "HOSTNAME", "TPUKIT_PROGRESS"])
def test_variable_that_the_image_gives_stays_as_written_in_arguments_and_values(world: World, name: str):
    env = [{"name": "VALUE", "value": f"$({name})"}, {"name": "OWN", "value": "own"}]
    world.pod(
        "python", "-c", "import os, sys; print(os.environ['VALUE'], *sys.argv[1:])", f"$({name})", "$(OWN)", env=env
    )
    world.phase("Succeeded")
    assert world.log() == f"$({name}) $({name}) own\n"


@pytest.mark.parametrize(
    ("links", "told"), [({}, "10.0.0.7 tcp://10.0.0.7:80 443"), ({"enableServiceLinks": False}, "- - 443")]
)
def test_services_of_the_namespace_are_in_the_environment_unless_the_pod_wants_none(world: World, links, told: str):
    ports = [{"port": 80}]
    for name, namespace, address in (("my-web", "default", "10.0.0.7"), ("other", "elsewhere", "10.0.0.8")):
        metadata = {"name": name, "namespace": namespace}
        world.api.put("Service", {"metadata": metadata, "spec": {"clusterIP": address, "ports": ports}})
    world.shell(
        "echo ${MY_WEB_SERVICE_HOST:--} ${MY_WEB_PORT:--} ${KUBERNETES_SERVICE_PORT_HTTPS:+443}$OTHER_SERVICE_HOST",
        spec=links,
    )
    world.phase("Succeeded")
    assert world.log() == f"{told}\n"


@pytest.mark.parametrize(("policy", "command"), [("Always", "true"), ("OnFailure", "false")])
def test_active_deadline_that_passes_between_two_runs_fails_the_pod_with_its_reason(world: World, policy, command):
    world.pod(command, spec={"restartPolicy": policy, "activeDeadlineSeconds": 2})
    assert world.phase("Succeeded", "Failed")["reason"] == "DeadlineExceeded"
    assert world.status()["phase"] == "Failed"


def test_pod_with_a_closed_readiness_gate_is_ready_when_somebody_opens_it(world: World):
    def ready() -> dict[str, str]:
        return {one["type"]: one for one in world.status()["conditions"]}["Ready"]

    world.shell("exec sleep 60", spec={"readinessGates": [{"conditionType": "example.com/open"}]})
    world.phase("Running")
    assert (ready()["status"], ready()["reason"]) == ("False", "ReadinessGatesNotReady")
    assert {one["type"]: one["status"] for one in world.status()["conditions"]}["ContainersReady"] == "True"
    opened = {"status": {"conditions": [{"type": "example.com/open", "status": "True"}]}}
    world.api.patch("Pod", "p", opened, "default", part="status", way="strategic-merge")
    world.until(lambda: ready()["status"] == "True")


def test_container_that_restarts_by_its_own_rule_does_so_in_a_pod_that_never_restarts(world: World):
    rule = {"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}
    script = "if [ -e /data/again ]; then exit 3; else touch /data/again; exit 42; fi"
    mounts = [{"name": "data", "mountPath": "/data"}]
    own = {"restartPolicy": "Never", "restartPolicyRules": [rule], "volumeMounts": mounts}
    world.shell(script, spec={"volumes": [{"name": "data", "emptyDir": {}}]}, **own)
    assert world.phase("Failed")["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
    assert world.container()["restartCount"] == 1


def test_termination_message_is_the_end_of_the_file_and_the_log_gives_half_as_much(world: World):
    world.shell("printf '%05000d' 7 > /dev/termination-log", name="file")
    world.shell("printf '%05000d' 7; exit 1", name="log", terminationMessagePolicy="FallbackToLogsOnError")
    for name, most in (("file", 4096), ("log", 2048)):
        world.phase("Succeeded", "Failed", name=name)
        assert len(world.container(name)["state"]["terminated"]["message"]) == most


@pytest.mark.parametrize(
    ("image", "policy", "reason"),
    [
        ("Bad/Image:UPPER CASE", "IfNotPresent", "InvalidImageName"),
        ("python:3.13", "Never", "ErrImageNeverPull"),
    ],
)
def test_image_that_nobody_can_or_may_pull_keeps_the_container_waiting(world: World, image, policy, reason):
    world.pod("true", image=image, imagePullPolicy=policy)
    world.until(lambda: world.status().get("containerStatuses"))
    assert world.container()["state"]["waiting"]["reason"] == reason


def _from(name: str, kind: str, thing: str, key: str) -> dict[str, object]:
    return {"name": name, "valueFrom": {kind: {"name": thing, "key": key}}}
