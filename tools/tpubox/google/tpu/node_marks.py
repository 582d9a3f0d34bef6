"""Labels, network tags and metadata of TPU VMs. The limits are those of the machines below them."""

from __future__ import annotations

import re

from tpubox.google.wire.label_rules import LONGEST, is_plain
from tpubox.google.wire.refusal import Refused
from tpubox.google.wire.sources import GUESS, TPU_LABELS
from tpubox.google.wire.state import Doc

MOST_LABELS = 64
VALUE_BYTES = 256 * 1024
METADATA_BYTES = 512 * 1024
_TAG = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_METADATA_KEY = re.compile(r"[a-zA-Z0-9_-]{1,128}")


def check(node: Doc) -> None:
    _check_labels(node.get("labels") or {})
    _check_metadata(node.get("metadata") or {})
    for tag in node.get("tags") or []:
        if not _TAG.fullmatch(tag):  # https://cloud.google.com/vpc/docs/add-remove-network-tags#restrictions
            raise GUESS.invalid(f"Invalid network tag {tag!r}: it must match {_TAG.pattern!r}.")


def _check_labels(labels: dict[str, str]) -> None:
    """Refuse invalid labels. The error texts are guesses, except for an invalid character.

    https://cloud.google.com/resource-manager/docs/labels-overview#requirements
    """
    if len(labels) > MOST_LABELS:
        raise _invalid(f"there are {len(labels)} of them, more than {MOST_LABELS}")
    for key, value in labels.items():
        if not key or not key[0].isalpha():
            raise _invalid(f'key "{key}" does not begin with a letter')
        for what, text, of in (("key", key, ""), ("value", value, f' for key "{key}"')):
            if len(text) > LONGEST:
                raise _invalid(f'{what} "{text}" is longer than {LONGEST} characters{of}')
            for index, letter in enumerate(text):
                if not is_plain(letter):
                    raise _invalid(f"{what} \"{text}\" contains invalid character '{letter}' at index {index}{of}")


def _invalid(why: str) -> Refused:
    return TPU_LABELS.invalid(f"resource labels are invalid: {why}")


def _check_metadata(metadata: dict[str, str]) -> None:
    """Refuse invalid metadata.

    https://cloud.google.com/compute/docs/metadata/setting-custom-metadata#limitations
    """
    for key, value in metadata.items():
        if not _METADATA_KEY.fullmatch(key):
            raise GUESS.invalid(f"Invalid metadata key {key!r}: it must match {_METADATA_KEY.pattern!r}.")
        if len(value.encode()) > VALUE_BYTES:
            raise GUESS.invalid(f"The value of metadata key {key!r} is longer than {VALUE_BYTES} bytes.")
    if sum(len(key.encode()) + len(value.encode()) for key, value in metadata.items()) > METADATA_BYTES:
        raise GUESS.invalid(f"The metadata of a node must not be longer than {METADATA_BYTES} bytes in all.")
