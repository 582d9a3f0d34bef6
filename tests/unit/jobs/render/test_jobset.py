"""Rendering of a plan: the guarantees of the JobSet, one by one."""

import re
from dataclasses import replace

import kubernetes_validate
import pytest

from tpukit import catalogue
from tpukit.core import resources
from tpukit.core.errors import Invalid
from tpukit.jobs import plan, render
from tpukit.jobs.plan import Snapshot
from tpukit.jobs.reasons import Lost
from tpukit.jobs.records import Attempt
from tpukit.jobs.rules import RULES, Action
from tpukit.jobs.spec import JobSpec, Settings

IMAGE = "us-docker.pkg.dev/p/r/train@sha256:" + "0" * 64
GKE_SLICES = [shape for shape in catalogue.slices() if shape.machine_type]


BOARD = {"tensorboard": "projects/p1/locations/us-central1/tensorboards/7"}


def planned(*, place="gke", settings=None, **spec):
    spec = {"name": "train", "tpu": "v4-32", "command": ["python", "train.py"], "image": IMAGE, **spec}
    given = {"artifacts": "gs://artifacts", **(settings or {})}
    return plan.make(JobSpec.from_json(spec), Settings.from_json(given), place)


def rendered(**spec):
    (document,) = render.documents(planned(**spec))
    return document


def job_of(document, name="slice"):
    (found,) = [job for job in document["spec"]["replicatedJobs"] if job["name"] == name]
    return found


def pod_of(document, name="slice"):
    return job_of(document, name)["template"]["spec"]["template"]["spec"]


def env_of(pod):
    entries = pod["containers"][0]["env"]
    assert len({entry["name"] for entry in entries}) == len(entries)
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in entries}


def as_jobs(document):
    """Yield the Jobs that JobSet creates from the document."""
    for job in document["spec"]["replicatedJobs"]:
        meta = {**job["template"]["metadata"], "name": f"{document['metadata']['name']}-{job['name']}-0"}
        yield {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": job["template"]["spec"]}


def test_documents_two_slices_make_one_jobset_of_whole_pools():
    document = rendered(slices=2)
    assert (document["apiVersion"], document["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    job = job_of(document)
    assert job["replicas"] == 2
    assert job["template"]["spec"]["completions"] == job["template"]["spec"]["parallelism"] == 4
    exclusive = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "cloud.google.com/gke-nodepool"}
    assert job["template"]["metadata"]["annotations"] == exclusive
    assert pod_of(document)["nodeSelector"] == {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v4-podslice",
        "cloud.google.com/gke-tpu-topology": "2x2x4",
        "cloud.google.com/gke-provisioning": "standard",
    }
    resources = pod_of(document)["containers"][0]["resources"]
    assert resources["requests"]["google.com/tpu"] == resources["limits"]["google.com/tpu"] == 4


def test_documents_names_and_queue_come_from_the_plan():
    made = planned(team="research", priority="high", tags=["sweep-3", "b"])
    (document,) = render.documents(replace(made, snapshot=Snapshot("d" * 64, "c" * 40, dirty=True)))
    assert (document["metadata"]["name"], document["metadata"]["namespace"]) == (made.id, "research")
    assert document["metadata"]["labels"] == {
        "app.kubernetes.io/managed-by": "tpukit",
        "tpukit.dev/job": made.id,
        "kueue.x-k8s.io/queue-name": "research",
        "kueue.x-k8s.io/priority-class": "high",
    }
    assert document["metadata"]["annotations"] == {
        "tpukit.dev/attempt": "0",
        "tpukit.dev/tags": '["sweep-3", "b"]',
        "tpukit.dev/code": "d" * 64,
        "tpukit.dev/commit": f"{'c' * 40}-dirty",
    }


def test_documents_coordinator_is_host_0_of_slice_0_and_its_address_fits_a_label():
    made = planned(name="a" * 32, slices=256, tpu="v5p-12288")
    (document,) = render.documents(made)
    spec = document["spec"]
    assert spec["coordinator"] == {"replicatedJob": "slice", "jobIndex": 0, "podIndex": 0}
    assert spec["network"]["subdomain"] == made.subdomain
    address = f"{document['metadata']['name']}-slice-0-0.{spec['network']['subdomain']}"
    assert address == made.coordinator
    assert len(address) <= 63
    longest_pod = f"{made.id}-slice-255-1535-abcde"
    assert len(longest_pod) <= 63


def test_documents_are_not_suspended_by_us_so_that_sending_again_does_not_stop_a_running_job():
    assert "suspend" not in rendered()["spec"]


def test_env_ours_comes_last_and_multislice_facts_come_from_jobset():
    env = env_of(pod_of(rendered(env={"XLA_FLAGS": "--a --b", "HOME": "/data"}, workdir="gs://bucket/runs/x")))
    assert env["XLA_FLAGS"] == "--a --b"
    assert env["HOME"] == "/data"
    assert env["TMPDIR"] == "/tmp"
    assert env["TPUKIT_WORKDIR"] == "gs://bucket/runs/x"

    def annotation(key):
        return {"fieldRef": {"fieldPath": f"metadata.annotations['jobset.sigs.k8s.io/{key}']"}}

    assert env["MEGASCALE_NUM_SLICES"] == annotation("replicatedjob-replicas")
    assert env["MEGASCALE_SLICE_ID"] == annotation("job-index")
    assert env["MEGASCALE_COORDINATOR_ADDRESS"] == annotation("coordinator")
    assert env["TPUKIT_RESTARTS"] == annotation("restart-attempt")


def test_env_later_attempt_counts_on_and_a_rerun_has_a_folder_of_its_own():
    made = planned(workdir="gs://bucket/runs/x")
    (document,) = render.documents(made, Attempt(number=5, stage=2, origin=3))
    env = env_of(pod_of(document))
    assert (env["TPUKIT_FIRST_ATTEMPT"], env["TPUKIT_FIRST_STAGE"]) == ("5", "2")
    assert env["TPUKIT_WORKDIR"] == "gs://bucket/runs/x/rerun-3"
    assert document["metadata"]["annotations"]["tpukit.dev/attempt"] == "5"


def test_code_each_part_is_mounted_where_the_launcher_looks():
    made = replace(planned(code="."), snapshot=Snapshot("0123456789abcdef" * 4, "", dirty=False))
    (document,) = render.documents(made, code_parts=2)
    pod = pod_of(document)
    (mount,) = [one for one in pod["containers"][0]["volumeMounts"] if one["name"] == "code"]
    (volume,) = [one for one in pod["volumes"] if one["name"] == "code"]
    assert mount == {"name": "code", "mountPath": env_of(pod)["TPUKIT_CODE"], "readOnly": True}
    names = [source["configMap"]["name"] for source in volume["projected"]["sources"]]
    assert names == ["code-0123456789abcdef0123-0", "code-0123456789abcdef0123-1"]
    assert document["metadata"]["annotations"]["tpukit.dev/code"] == made.snapshot.digest


def test_code_none_is_not_mounted():
    pod = pod_of(rendered())
    assert "TPUKIT_CODE" not in env_of(pod)
    assert "code" not in {volume["name"] for volume in pod["volumes"]}


def test_uploader_without_a_tensorboard_to_send_to_is_left_out():
    document = rendered(tensorboard=True)
    assert [job["name"] for job in document["spec"]["replicatedJobs"]] == ["slice"]


def test_command_runs_under_the_launcher_with_config_behind_it():
    made = planned(command=["python", "train.py", "a b"], config={"training": {"learning_rate": 0.1}})
    (container,) = pod_of(render.documents(made)[0])["containers"]
    script = (resources.folder("jobset") / "launch.sh").read_text()
    assert container["command"] == ["/bin/sh", "-c", script, "tpukit-launch"]
    assert container["args"] == ["python", "train.py", "a b", "--config.training.learning_rate=0.1"]


@pytest.mark.parametrize(
    "capacity, selector, tolerated",
    [
        ("on-demand", {"cloud.google.com/gke-provisioning": "standard"}, []),
        (
            "spot",
            {"cloud.google.com/gke-spot": "true", "cloud.google.com/gke-provisioning": "spot"},
            ["cloud.google.com/gke-spot"],
        ),
        (
            "flex-start",
            {"cloud.google.com/gke-flex-start": "true", "cloud.google.com/gke-provisioning": "flex-start"},
            ["cloud.google.com/gke-queued"],
        ),
        ({"reservation": "r1"}, {"cloud.google.com/reservation-name": "r1"}, []),
        (
            {"reservation": "projects/p1/reservations/r1"},
            {"cloud.google.com/reservation-name": "r1", "cloud.google.com/reservation-project": "p1"},
            [],
        ),
    ],
)
def test_capacity_selects_its_nodes(capacity, selector, tolerated):
    pod = pod_of(rendered(capacity=capacity))
    assert {key: pod["nodeSelector"][key] for key in list(pod["nodeSelector"])[2:]} == selector
    assert [toleration["key"] for toleration in pod["tolerations"]] == ["google.com/tpu", *tolerated]
    assert ("affinity" in pod) == isinstance(capacity, str), "reserved nodes are for those that name the reservation"


@pytest.mark.parametrize(
    ("capacity", "runtime", "planned"),
    [("flex-start", "1h", "4500"), ("flex-start", "7d", "604800"), ("flex-start", None, None), ("spot", "1h", None)],
)
def test_nodes_of_flex_start_are_planned_for_the_runtime_of_the_job(capacity, runtime, planned):
    document = rendered(capacity=capacity, **({"max": {"runtime": runtime}} if runtime else {}))
    assert document["metadata"]["annotations"].get("provreq.kueue.x-k8s.io/maxRunDurationSeconds") == planned


@pytest.mark.parametrize("machine_type, hosts, chips", [("ct5lp-hightpu-8t", 1, 8), ("ct5lp-hightpu-4t", 2, 4)])
def test_topology_on_two_machine_types_selects_hosts_by_their_chips(machine_type, hosts, chips):
    document = rendered(tpu={"type": "v5e-8", "machine_type": machine_type})
    assert job_of(document)["template"]["spec"]["parallelism"] == hosts
    assert pod_of(document)["nodeSelector"]["cloud.google.com/gke-accelerator-count"] == str(chips)


RESTART, COUNTED, END = "RestartJobSetAndIgnoreMaxRestarts", "RestartJobSet", "FailJobSet"


FOLLOWS = {Action.NOTHING: END, Action.RERUN: END, Action.RESUME: RESTART, Action.REAPPLY: RESTART}


@pytest.mark.parametrize("rule", RULES)
def test_failure_policy_follows_the_rule_and_charges_only_the_users_errors(rule):
    preempted, peer_lost = FOLLOWS[RULES[rule][Lost.HOST]], FOLLOWS[RULES[rule][Lost.PEER]]
    document = rendered(rule=rule, max={"restarts": 20})
    policy = document["spec"]["failurePolicy"]
    assert (policy["maxRestarts"], policy["restartStrategy"]) == (20, "BlockingRecreate")
    assert decided(document, disrupted=True) == preempted
    assert decided(document, code=143) == preempted
    assert decided(document, code=134) == peer_lost
    assert [decided(document, code=code) for code in (1, 127, 137, 139)] == [COUNTED] * 4
    assert decided(document, reason="DeadlineExceeded") == END


def test_failure_policy_several_slices_failed_the_cause_wins_over_its_consequence():
    document = rendered(rule="pre")
    user, peer, host = job_failure(document, code=1), job_failure(document, code=134), job_failure(document, code=143)
    assert first_rule(document, [peer, user])["name"] == "userError"
    assert first_rule(document, [user, peer, host])["name"] == "preempted"


def decided(document, **failure):
    return first_rule(document, [job_failure(document, **failure)])["action"]


def job_failure(document, *, code=0, disrupted=False, reason=None):
    """Return reason and message of a Job whose pod ended so, as Kubernetes 1.36 does (pod_failure_policy.go)."""
    spec = job_of(document)["template"]["spec"]
    assert spec["backoffLimit"] == 0
    container = pod_of(document)["containers"][0]["name"]
    for index, rule in enumerate(spec["podFailurePolicy"]["rules"]):
        if codes := rule.get("onExitCodes"):
            assert (codes["containerName"], codes["operator"]) == (container, "In")
            matched = code in codes["values"]
            message = f"Container host for pod ns/p failed with exit code {code} matching FailJob rule at index {index}"
        else:
            assert rule["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]
            matched = disrupted
            message = f"Pod ns/p has condition DisruptionTarget matching FailJob rule at index {index}"
        if matched:
            return "PodFailurePolicy", message
    return reason or "BackoffLimitExceeded", "Job has reached the specified backoff limit"


def first_rule(document, failures):
    """Return the rule that JobSet 0.12 applies: the first that matches any failed Job."""
    for rule in document["spec"]["failurePolicy"]["rules"]:
        for reason, message in failures:
            patterns = rule.get("onJobFailureMessagePatterns", [""])
            if reason in rule["onJobFailureReasons"] and any(re.search(pattern, message) for pattern in patterns):
                return rule
    raise AssertionError("JobSet would count this against the user")


def test_bounds_become_deadline_and_grace():
    document = rendered(max={"runtime": "2h", "grace": "90s"})
    assert job_of(document)["template"]["spec"]["activeDeadlineSeconds"] == 7200
    assert pod_of(document)["terminationGracePeriodSeconds"] == 90
    assert "activeDeadlineSeconds" not in job_of(rendered())["template"]["spec"]


@pytest.mark.parametrize("name", ["slice", "tensorboard"])
def test_pods_are_hardened(name):
    pod = pod_of(rendered(tensorboard=True, settings=BOARD), name)
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["volumeMounts"][0] == {"name": "scratch", "mountPath": "/tmp"}
    assert container["resources"]["limits"]["memory"] == container["resources"]["requests"]["memory"]


@pytest.mark.parametrize(
    ("access", "user", "container"),
    [
        (
            "restricted",
            65532,
            {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            },
        ),
        (
            "tpu",
            0,
            {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"], "add": ["SYS_RESOURCE"]},
            },
        ),
        ("privileged", 0, {"privileged": True}),
    ],
)
def test_access_to_chips_gives_the_host_what_it_names_and_its_buckets_to_the_same_user(access, user, container):
    document = rendered(access=access, tensorboard=True, settings=BOARD, mounts=[{"bucket": "b-1", "path": "/data"}])
    pod = pod_of(document)
    (host,) = pod["containers"]
    assert (pod["securityContext"]["runAsUser"], host["securityContext"]) == (user, container)
    assert f"uid={user}," in pod["volumes"][-1]["csi"]["volumeAttributes"]["mountOptions"]
    raised = [one["value"] for one in host["env"] if one["name"] == "TPUKIT_MEMLOCK"]
    assert raised == ([] if access == "restricted" else ["68719476736"])
    uploader = document["spec"]["replicatedJobs"][1]["template"]["spec"]["template"]["spec"]
    assert uploader["securityContext"]["runAsUser"] == 65532


def test_program_that_needs_root_runs_as_root_and_what_runs_beside_it_does_not():
    document = rendered(root=True, tensorboard=True, settings=BOARD)
    pod = pod_of(document)
    assert "runAsNonRoot" not in pod["securityContext"]
    assert pod["securityContext"]["runAsUser"] == 0
    container = pod["containers"][0]["securityContext"]
    assert container == {"allowPrivilegeEscalation": False}
    beside = pod_of(document, "tensorboard")
    assert beside["securityContext"]["runAsNonRoot"] is True
    assert beside["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_uploader_is_left_out_unless_asked_for():
    assert [job["name"] for job in rendered()["spec"]["replicatedJobs"]] == ["slice"]


def test_uploader_runs_on_the_cpu_pool_and_decides_nothing():
    made = planned(tensorboard=True, settings={**BOARD, "tools_image": "tools:1"})
    (document,) = render.documents(made)
    pod = pod_of(document, "tensorboard")
    assert pod["nodeSelector"] == {"tpukit.dev/pool": "cpu"}
    (container,) = pod["containers"]
    assert container["image"] == "tools:1"
    assert container["command"] == [
        *("python", "-m", "tpukit.host.tensorboard"),
        *("--logdir", f"gs://artifacts/runs/{made.id}/tensorboard"),
        *("--tensorboard", BOARD["tensorboard"], "--experiment", made.id),
    ]
    assert "google.com/tpu" not in container["resources"]["requests"]
    assert document["spec"]["successPolicy"] == {"operator": "All", "targetReplicatedJobs": ["slice"]}
    assert job_of(document, "tensorboard")["template"]["spec"]["backoffLimit"] == 2**31 - 1
    rules = document["spec"]["failurePolicy"]["rules"]
    assert all(rule["targetReplicatedJobs"] == ["slice"] for rule in rules)


def test_mounts_become_buckets_that_the_pods_user_owns():
    mounts = [{"bucket": "data", "path": "/data"}, {"bucket": "runs", "path": "/runs", "read_only": False}]
    document = rendered(mounts=mounts, workdir="/runs/x", tensorboard=True, settings=BOARD)
    for name in ("slice", "tensorboard"):
        pod = pod_of(document, name)
        user = pod["securityContext"]["runAsUser"]
        volumes = [volume["csi"] for volume in pod["volumes"] if "csi" in volume]
        assert [(csi["volumeAttributes"]["bucketName"], csi["readOnly"]) for csi in volumes] == [
            ("data", True),
            ("runs", False),
        ]
        assert f"uid={user},gid={user}" in volumes[0]["volumeAttributes"]["mountOptions"]
        assert [mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]][-2:] == ["/data", "/runs"]
        template = job_of(document, name)["template"]["spec"]["template"]
        assert template["metadata"]["annotations"] == {"gke-gcsfuse/volumes": "true"}


def problems_of(**spec):
    with pytest.raises(Invalid) as caught:
        render.text(planned(**spec))
    assert all(problem.hint for problem in caught.value.problems)
    return [problem.what for problem in caught.value.problems]


def test_gke_without_image_workdir_or_such_a_slice_says_all_three():
    found = problems_of(image=None, tpu="v2-8", settings={"artifacts": None})
    assert [what.partition(":")[0] for what in found] == ["image", "tpu", "workdir"]


@pytest.mark.parametrize("mounts", [[], [{"bucket": "b00", "path": "/runs"}]])
def test_gke_workdir_that_goes_away_with_the_host_is_refused(mounts):
    assert "is deleted with the host" in problems_of(workdir="/runs/x", mounts=mounts)[0]


def test_gke_mount_over_scratch_space_is_refused():
    assert "/tmp" in problems_of(mounts=[{"bucket": "b00", "path": "/tmp"}])[0]


def test_every_slice_on_gke_renders_to_jobs_that_kubernetes_knows():
    made = [render.documents(planned(tpu=named(shape), tensorboard=True, settings=BOARD))[0] for shape in GKE_SLICES]
    for shape, document in zip(GKE_SLICES, made, strict=True):
        assert job_of(document)["template"]["spec"]["parallelism"] == shape.hosts
        (container,) = pod_of(document)["containers"]
        assert container["resources"]["limits"]["google.com/tpu"] == shape.chips_per_host
        assert pod_of(document)["nodeSelector"]["cloud.google.com/gke-tpu-topology"] == shape.topology
    hosts = {shape.machine_type: document for shape, document in zip(GKE_SLICES, made, strict=True)}
    for document in hosts.values():
        for job in as_jobs(document):
            kubernetes_validate.validate(job, kubernetes_validate.latest_version(), strict=True)


def named(shape):
    return {"type": shape.name, "machine_type": shape.machine_type}


def test_requests_fit_their_machines_with_room_for_gke():
    for shape in GKE_SLICES:
        requests = pod_of(rendered(tpu=named(shape)))["containers"][0]["resources"]["requests"]
        assert requests["cpu"] >= 1
        memory_gb = int(requests["memory"].removesuffix("G"))
        if shape.host_vcpus:
            assert requests["cpu"] <= shape.host_vcpus - 2
            assert memory_gb <= shape.host_memory_gb * 0.86
        assert memory_gb >= 16
