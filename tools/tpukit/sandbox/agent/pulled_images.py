"""Which images nodes have. One of Artifact Registry is pulled once by each node, and Google says whether it may."""

from __future__ import annotations

from tpukit.sandbox.agent import image_names
from tpukit.sandbox.agent.emulator_door import EmulatorDoor


class PulledImages:
    """Safe from any thread."""

    def __init__(self, google: EmulatorDoor) -> None:
        self._google = google
        self._there: set[tuple[str, str]] = set()  # node, image

    def refusal(self, node: str, image: str) -> str:
        """Why the node does not get it, in the words of its container runtime; "" where it has it."""
        if image_names.missing(image):
            return f'failed to resolve reference "{image}": not found'
        if not self._google.url or not image_names.in_artifact_registry(image) or (node, image) in self._there:
            return ""
        try:
            refused = str(self._google.ask("pulls", {"node": node, "image": image})["refused"])
        except OSError as error:
            return f'failed to resolve reference "{image}": failed to do request: {error}'
        if not refused:
            self._there.add((node, image))
        return refused
