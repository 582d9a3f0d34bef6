"""Images on nodes. Each node pulls an image of Artifact Registry once, if Google permits it."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

from tpubox.kubelet import image_names
from tpubox.kubelet.emulator_door import EmulatorDoor

NOT_PULLED = "ErrImagePull"


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why a node does not have an image, in the words of a kubelet or its container runtime."""

    reason: str
    message: str


class PulledImages:
    """The images of all nodes. Thread-safe."""

    def __init__(self, google: EmulatorDoor, note: Path | None = None) -> None:
        """Take `note`, a file that keeps the list of pulled images across restarts."""
        self._google = google
        self._note = note
        self._lock = threading.Lock()
        known = note.read_text(encoding="utf-8").splitlines() if note and note.exists() else []
        self._there = {(node, image) for node, _, image in (line.partition(" ") for line in known)}

    def refusal(self, node: str, image: str, policy: str = "IfNotPresent") -> Refusal | None:
        """Return why the node cannot get the image, or None if it has it."""
        if (why := image_names.malformed(image)) is not None:
            parsed = f'couldn\'t parse image name "{image}": invalid reference format{why}'
            return Refusal("InvalidImageName", f'Failed to apply default image tag "{image}": {parsed}')
        there = (node, image) in self._there
        if policy == "Never" and not there:
            return Refusal("ErrImageNeverPull", f'Container image "{image}" is not present with pull policy of Never')
        if there and policy != "Always":
            return None
        if why := self._not_pulled(node, image):
            return Refusal(NOT_PULLED, why)
        self._keep(node, image)
        return None

    def _not_pulled(self, node: str, image: str) -> str:
        if image_names.missing(image):
            return f'failed to resolve reference "{image}": not found'
        if why := image_names.impossible(image):
            return f'failed to resolve reference "{image}": {why}'
        if not self._google.url or not image_names.in_artifact_registry(image):
            return ""
        try:
            return str(self._google.ask("pulls", {"node": node, "image": image})["refused"])
        except OSError as error:
            return f'failed to resolve reference "{image}": failed to do request: {error}'

    def _keep(self, node: str, image: str) -> None:
        with self._lock:
            if (node, image) in self._there:
                return
            self._there.add((node, image))
            if self._note:
                with self._note.open("a", encoding="utf-8") as file:
                    file.write(f"{node} {image}\n")
