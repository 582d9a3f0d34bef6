"""The driver of one pod, which does what is due and reports the result to the API server.

Each pass looks at the whole state: the pod in the API server and its folder. It therefore does not matter whether the
agent saw an event or was killed in between.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from tpubox.kubelet import image_names, launch, tpu_environment, volumes
from tpubox.kubelet.admission import Admission, Node
from tpubox.kubelet.api_server import Api
from tpubox.kubelet.containers import UNWELL, Container, Ending, containers, read_ending, write_ending
from tpubox.kubelet.decide import Step, next_step
from tpubox.kubelet.env import BadConfig, Object
from tpubox.kubelet.hooks import Hooks
from tpubox.kubelet.host_names import Names, pod_name, reported
from tpubox.kubelet.launch import Machine, Site
from tpubox.kubelet.lookups import Lookups
from tpubox.kubelet.mounted_buckets import MountedBuckets
from tpubox.kubelet.pod_events import PodEvents
from tpubox.kubelet.pod_metadata import Identities
from tpubox.kubelet.pod_status import Waiting, pod_status, same
from tpubox.kubelet.probes import WELL, Health, Probes
from tpubox.kubelet.pulled_images import NOT_PULLED, PulledImages, Refusal
from tpubox.kubelet.resolved_names import ResolvedNames
from tpubox.kubelet.times import parse
from tpukit.core.clock import Clock
from tpukit.core.errors import Conflict, Invalid, NotFound
from tpukit.places.local import processes as pods

HOST = "127.0.0.1"
RETRY_SECONDS = 2.0
_log = logging.getLogger(__name__)


class Driver:
    def __init__(
        self,
        api: Api,
        names: Names,
        machine: Machine,
        clock: Clock,
        buckets: MountedBuckets,
        watch: Callable[[str, Path], None],
        identities: Identities,
        images: PulledImages,
        admission: Admission,
        resolved: ResolvedNames,
        look: Callable[[str], None],
    ) -> None:
        """Take the parts that a pod needs.

        `watch` is called with the pod's uid and each active run of the pod; `look` with the uid of a pod that must be
        driven again.
        """
        self._api = api
        self._lookups = Lookups(api)
        self._names = names
        self._machine = machine
        self._clock = clock
        self._buckets = buckets
        self._watch = watch
        self._identities = identities
        self._images = images
        self._events = PodEvents(api, clock)
        self._refused: dict[tuple[str, str], float] = {}  # time of the first refusal, by uid of the pod and image
        self._admission = admission
        self._resolved = resolved
        self.probes = Probes(self._events, clock, look)
        self._hooks = Hooks(self._events, clock, look)

    def drive(self, pod: Object, folder: Path, node: Node, is_lost: Callable[[], bool]) -> float | None:
        """Do what is due and return the seconds until the next step, if nothing happens.

        `is_lost` returns whether the pod's host has been lost meanwhile.
        """
        left = self._note_reasons(pod, folder, node)
        ending = read_ending(folder)
        deadlines = [ending.deadline] if ending else []
        if asked := pod["metadata"].get("deletionTimestamp"):
            grace = float(pod["metadata"].get("deletionGracePeriodSeconds") or 0)
            deadlines.append(min(parse(asked) + 1.0, self._clock.now() + grace))  # timestamps are in whole seconds
        waiting: dict[str, Waiting] = {}
        while True:
            found = containers(pod, folder)
            health = self._health(pod, found)
            step = next_step(
                found,
                pod["spec"].get("restartPolicy", "Always"),
                self._clock.now(),
                grace=float(pod["spec"].get("terminationGracePeriodSeconds", 30)),
                deadline=min(deadlines, default=None),
                starting={name for name, one in health.items() if not one.started},
            )
            waiting |= {name: self._back_off(pod, name) for name in step.crashing - waiting.keys()}
            due = [container for container in step.start if container.name not in waiting]
            if not due:
                break
            for container in due:
                if trouble := self._start(pod, folder, node, container):
                    waiting[container.name] = trouble
        self._stop(pod, found, step)
        self._end_unwell(pod, found, health)
        unserved = None
        if any(container.running for container in found):
            # An earlier agent may have started it.
            self._resolved.file(pod, folder, self._addresses(pod)[0])
            try:
                self._metadata(pod, folder, node)
            except OSError:  # another process uses its port
                unserved = RETRY_SECONDS
        for container in found:
            if container.running:
                self._watch(pod["metadata"]["uid"], container.run_folder())
        if is_lost():  # the end of its processes is not the pod's doing; a lost host does not report
            return None
        self._report(pod, found, waiting, step, ending, health)
        if step.over:
            self.let_go(pod)
            return None
        due_in = (step.again, RETRY_SECONDS if waiting else None, left or None, unserved)
        return min((seconds for seconds in due_in if seconds is not None), default=None)

    def _start(self, pod: Object, folder: Path, node: Node, container: Container) -> Waiting | None:
        image = container.spec["image"]
        if image in image_names.ELSEWHERE:
            return Waiting("ContainerCreating", "a process of the sandbox replaces this pod")
        try:
            site = self._site(pod, folder, node)
        except OSError as problem:  # another process uses its metadata port, or this machine is busy
            _log.warning("pod %s: %s", pod["metadata"]["name"], problem)
            return Waiting("ContainerCreating")
        try:
            made = volumes.make(site.context, folder / "volumes")
            policy = container.spec.get("imagePullPolicy", "IfNotPresent")
            if refused := self._images.refusal(pod["spec"]["nodeName"], image, policy):
                return self._no_image(pod, image, refused)
            launch.start(self._machine, site, container, made)
        except volumes.MountFailed as problem:
            self._events.warn(pod, "FailedMount", problem.message)
            return Waiting("PodInitializing" if pod["spec"].get("initContainers") else "ContainerCreating")
        except BadConfig as problem:
            self._events.warn(pod, "Failed", f"Error: {problem.message}")
            return Waiting("CreateContainerConfigError", problem.message)
        return None

    def _no_image(self, pod: Object, image: str, why: Refusal) -> Waiting:
        if why.reason != NOT_PULLED:
            self._events.warn(pod, "InspectFailed" if why.reason == "InvalidImageName" else why.reason, why.message)
            return Waiting(why.reason, why.message)
        now = self._clock.now()
        if now - self._refused.setdefault((pod["metadata"]["uid"], image), now) < RETRY_SECONDS:
            self._events.warn(pod, "Failed", f'Failed to pull image "{image}": {why.message}')
            return Waiting(why.reason, why.message)
        self._events.warn(pod, "BackOff", f'Back-off pulling image "{image}"')
        return Waiting("ImagePullBackOff", f"Back-off pulling image: {why.message}")

    def _back_off(self, pod: Object, container: str) -> Waiting:
        metadata = pod["metadata"]
        full = f"{metadata['name']}_{metadata['namespace']}({metadata['uid']})"
        self._events.warn(pod, "BackOff", f"Back-off restarting failed container {container} in pod {full}")
        return Waiting("CrashLoopBackOff", "waiting to be restarted")

    def _stop(self, pod: Object, found: list[Container], step: Step) -> None:
        """Stop containers; all their preStop hooks run in parallel before any container is signalled."""
        if not step.stop:
            return
        graces = {container.name: grace for container, grace in step.stop}
        address, longest = self._addresses(pod)[0], max(graces.values())
        for container in [one for one in found if one.running]:
            left = self._hooks.before_stop(pod, container, address, graces.get(container.name, longest))
            run = container.run_folder()
            if left is not None and container.name in graces and (left <= 0 or not pods.stop_requested(run)):
                pods.stop(run, left)

    def _health(self, pod: Object, found: list[Container]) -> dict[str, Health]:
        """Return the health of running containers. Probes start after the postStart hook is done."""
        running = [one for one in found if one.running]
        address = self._addresses(pod)[0] if running else ""
        health = {one.name: self._hooks.after_start(pod, one, address) for one in running}
        return {
            one.name: self.probes.health(pod, one, address) if health[one.name] == WELL else health[one.name]
            for one in running
        }

    def _end_unwell(self, pod: Object, found: list[Container], health: Mapping[str, Health]) -> None:
        for container in found:
            how = health.get(container.name, WELL)
            run = container.run_folder()
            if how.grace is not None and not pods.stop_requested(run):
                if how.probed:
                    (run / UNWELL).touch()
                left = self._hooks.before_stop(pod, container, self._addresses(pod)[0], how.grace)
                if left is not None:
                    pods.stop(run, left)

    def _report(
        self,
        pod: Object,
        found: list[Container],
        waiting: Mapping[str, Waiting],
        step: Step,
        ending: Ending | None,
        health: Mapping[str, Health],
    ) -> None:
        metadata = pod["metadata"]
        own, _ = self._addresses(pod)
        status = pod_status(
            pod,
            found,
            waiting,
            self._clock.now(),
            over=step.over,
            ending=ending,
            addresses={"podIP": reported(own), "podIPs": [{"ip": reported(own)}], "hostIP": HOST},
            health=health,
        )
        if same(status, pod.get("status", {})):
            return
        try:
            self._api.patch(
                "Pod",
                metadata["name"],
                {"metadata": {"uid": metadata["uid"]}, "status": status},
                metadata["namespace"],
                part="status",
                way="strategic-merge",
            )
        except (NotFound, Conflict):
            return  # the pod was removed or replaced; the watch reports it
        except Invalid as refusal:
            _log.error("pod %s: its status was refused: %s", metadata["name"], refusal)

    def let_go(self, pod: Object) -> None:
        """Delete a pod from the API server that is marked for deletion and has ended."""
        metadata = pod["metadata"]
        if "deletionTimestamp" in metadata and metadata.get("deletionGracePeriodSeconds") != 0:
            path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
            options = {"gracePeriodSeconds": 0, "preconditions": {"uid": metadata["uid"]}}
            with suppress(NotFound, Conflict):
                self._api.call("DELETE", path, body=options)

    def _note_reasons(self, pod: Object, folder: Path, node: Node) -> float | None:
        """Record why the pod must end, if it must, and return the seconds left of its active deadline."""
        ran = any(container.runs for container in containers(pod, folder))
        if _began(pod) and not ran:
            message = "The node agent lost its state of this pod"
            write_ending(folder, Ending("ContainerStatusUnknown", message, self._clock.now()))
        elif not ran and (refused := self._admission.rejection(pod, folder, node)):
            write_ending(folder, Ending(refused.reason, refused.message, self._clock.now(), rejected=True))
        seconds, began = pod["spec"].get("activeDeadlineSeconds"), pod.get("status", {}).get("startTime")
        if seconds is None or not began:
            return None
        left: float = parse(began) + seconds - self._clock.now()
        if left <= 0:
            grace = float(pod["spec"].get("terminationGracePeriodSeconds", 30))
            message = "Pod was active on the node longer than the specified deadline"
            write_ending(folder, Ending("DeadlineExceeded", message, self._clock.now() + grace))
        return max(0.0, left)

    def _addresses(self, pod: Object) -> tuple[str, tuple[str, ...]]:
        """Return the pod's own address and the host names of its slice, after assigning an address to each of them."""
        metadata, spec = pod["metadata"], pod["spec"]
        own = pod_name(spec.get("hostname") or metadata["name"], spec.get("subdomain", ""))
        slice_names = tpu_environment.host_names(pod, self._lookups.job(pod)) if spec.get("subdomain") else []
        names = [own, *slice_names, *filter(None, [tpu_environment.coordinator(pod)])]
        return self._names.addresses(metadata["namespace"], names)[own], tuple(slice_names)

    def _site(self, pod: Object, folder: Path, node: Node) -> Site:
        namespace = pod["metadata"]["namespace"]
        address, slice_names = self._addresses(pod)
        context = volumes.Context(
            pod,
            {"podIP": address, "hostIP": HOST},
            node.allocatable,
            self._lookups,
            lambda wanted: self._lookups.token(pod, wanted),
            lambda volume: self._buckets.mount(pod, volume, identified=bool(node.cluster)),
        )
        names = self._names.all_addresses(namespace)
        hosts_file = self._resolved.file(pod, folder, address)
        metadata = self._metadata(pod, folder, node)
        return Site(context, folder, node.labels, address, names, slice_names, hosts_file, metadata)

    def _metadata(self, pod: Object, folder: Path, node: Node) -> str:
        """Serve the pod's metadata; pods on nodes outside GKE have no identity and act as the owner."""
        return self._identities.serve(pod, folder, self._addresses(pod)[0]) if node.cluster else ""

    def forget(self, uid: str) -> None:
        """Forget a removed pod."""
        self._refused = {pulled: since for pulled, since in self._refused.items() if pulled[0] != uid}
        self._identities.forget(uid)
        self._buckets.forget(uid)
        self._events.forget(uid)
        self._resolved.forget(uid)
        self.probes.forget(uid)
        self._hooks.forget(uid)


def _began(pod: Object) -> bool:
    """Return whether the pod's status says that one of its containers was started."""
    status = pod.get("status", {})
    everyone = [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]
    return any("waiting" not in one.get("state", {"waiting": {}}) for one in everyone)
