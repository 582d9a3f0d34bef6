"""Rules of labels: those of Google's resources, and those of Kubernetes, which also apply to taints."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tpubox.google.wire.sources import GKE_LABELS, GUESS

LONGEST = 63
_LETTERS_OF_KUBERNETES = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_DOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_RULE = (
    "It must only contain lowercase letters ([a-z]), numeric characters ([0-9]), underscores (_) and dashes (-). "
    "International characters are allowed."
)


def check_resource_labels(labels: Mapping[str, str], where: str) -> None:
    """Refuse invalid labels of a resource.

    https://cloud.google.com/resource-manager/docs/labels-overview#requirements
    """
    for key, value in labels.items():
        if not (key[:1].isalpha() and is_resource_word(key)):
            raise GKE_LABELS.invalid(f"Invalid field '{where}.key': \"{key}\". {_RULE}")
        if not is_resource_word(value):
            raise GKE_LABELS.invalid(f"Invalid field '{where}.value': \"{value}\". {_RULE}")


def is_resource_word(text: str) -> bool:
    return len(text) <= LONGEST and all(map(is_plain, text))


def is_plain(letter: str) -> bool:
    """Return True if labels of Google's resources may contain the character."""
    return letter in "_-" or (letter.isalnum() and letter == letter.lower())


def is_kubernetes_key(text: str) -> bool:
    """Return True if the text is a valid Kubernetes label key.

    https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set
    """
    prefix, slash, name = text.rpartition("/")
    named = not slash or (len(prefix) <= 253 and _DOMAIN.fullmatch(prefix) is not None)
    return named and _LETTERS_OF_KUBERNETES.fullmatch(name) is not None


def is_kubernetes_value(text: str) -> bool:
    return not text or _LETTERS_OF_KUBERNETES.fullmatch(text) is not None


def check_node_labels(labels: Mapping[str, str]) -> None:
    for key, value in labels.items():
        if not is_kubernetes_key(key):
            raise GUESS.invalid(f"Invalid field 'node_pool.config.labels': \"{key}\" is not a valid label key.")
        if not is_kubernetes_value(value):
            raise GUESS.invalid(f"Invalid field 'node_pool.config.labels': \"{value}\" is not a valid label value.")
