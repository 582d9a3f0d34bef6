"""Firewall rules: the values that Google fills in, and the rules that it refuses. The error texts are guesses."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

from tpubox.google.wire.refusal import Refused
from tpubox.google.wire.sources import GUESS
from tpubox.google.wire.state import Doc

_SOURCES = ("sourceRanges", "sourceTags", "sourceServiceAccounts")
_PROTOCOLS = {"tcp", "udp", "icmp", "esp", "ah", "ipip", "sctp", "all"}
"""Protocols that have a name. The others are known by number.

https://cloud.google.com/firewall/docs/firewalls#protocols_and_ports
"""
_LAST_PRIORITY = 65535
_LAST_PORT = 65535


def filled_in(rule: Doc) -> Doc:
    """Fill in the defaults; a rule without a source applies to all addresses.

    Defaults: https://cloud.google.com/compute/docs/reference/rest/v1/firewalls Rules without a source:
    https://github.com/hashicorp/terraform-provider-google/issues/4031
    """
    defaults = {"priority": 1000, "direction": "INGRESS", "disabled": False, "logConfig": {"enable": False}}
    filled = {**defaults, **rule}
    ingress = filled["direction"] == "INGRESS"
    if not any(rule.get(name) for name in (_SOURCES if ingress else ("destinationRanges",))):
        filled["sourceRanges" if ingress else "destinationRanges"] = ["0.0.0.0/0"]
    return filled


def check(rule: Doc) -> None:
    """Refuse a filled-in rule that Google would not accept."""
    if bool(rule.get("allowed")) == bool(rule.get("denied")):
        raise GUESS.invalid(
            "Invalid value for field 'resource.allowed': ''. Exactly one of allowed and denied must be specified."
        )
    if not 0 <= int(rule["priority"]) <= _LAST_PRIORITY:
        raise _invalid("priority", rule["priority"], f"Must be between 0 and {_LAST_PRIORITY}, inclusive.")
    for field in ("sourceRanges", "destinationRanges"):
        for index, text in enumerate(rule.get(field) or ()):
            # Google refuses host bits outside the mask: https://github.com/CartoDB/cartodb/pull/15649
            try:
                ipaddress.ip_network(text)
            except ValueError as error:
                raise _invalid(f"{field}[{index}]", text, "Must be a valid CIDR address range.") from error
    for where, entry in _entries(rule):
        _check_entry(where, entry)


def _entries(rule: Doc) -> Iterator[tuple[str, Doc]]:
    for field in ("allowed", "denied"):
        for index, entry in enumerate(rule.get(field) or ()):
            yield f"{field}[{index}]", entry


def _check_entry(where: str, entry: Doc) -> None:
    protocol = str(entry.get("IPProtocol") or "").lower()
    if not protocol:
        raise GUESS.refused(400, f"Required field 'resource.{where}.IPProtocol' not specified", reason="required")
    if protocol not in _PROTOCOLS and not (protocol.isdecimal() and int(protocol) < 256):
        raise _invalid(f"{where}.IPProtocol", entry["IPProtocol"], "Must be a valid IP protocol name or number.")
    for index, text in enumerate(entry.get("ports") or ()):
        found = re.fullmatch(r"(\d+)(?:-(\d+))?", text)
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
        if not first <= last <= _LAST_PORT:
            raise _invalid(f"{where}.ports[{index}]", text, "Must be a port or a range of ports.")


def _invalid(field: str, value: object, why: str) -> Refused:
    return GUESS.invalid(f"Invalid value for field 'resource.{field}': '{value}'. {why}")
