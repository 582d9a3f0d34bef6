"""The environment of a container, as a kubelet builds it.

The sources are the variables of Services, then envFrom, then env in order; in each value $(NAME) is replaced if NAME is
already known. A kubelet does not know variables from the image or the container runtime, such as HOME and PATH: $(HOME)
stays as it is written.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Protocol

from tpukit.core.errors import TpukitError

Object = Mapping[str, Any]

_VARIABLE = re.compile(r"\$(\$|\(([^()]*)\))")
_KEYED = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")
_UNITS = {
    "": 0, "n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18,
}  # fmt: skip
_NAME = re.compile(r"[^\0=]+")


class BadConfig(TpukitError):
    """The pod refers to something that does not exist. A kubelet retries until it does."""


class Sources(Protocol):
    """Sources of values by namespace and name: None if the object does not exist. Values are text or bytes."""

    def config_map(self, namespace: str, name: str) -> Object | None: ...

    def secret(self, namespace: str, name: str) -> Object | None: ...

    def services(self, namespace: str) -> Iterable[Object]: ...


def expand(text: str, known: Mapping[str, str]) -> str:
    """Replace $(NAME) with its value if it is known, and $$ with $."""

    def value(match: re.Match[str]) -> str:
        if match[1] == "$":
            return "$"
        return known.get(match[2], match[0])

    return _VARIABLE.sub(value, text)


def field(path: str, pod: Object, addresses: Mapping[str, str]) -> str:
    """Return a field of the downward API. `addresses` holds podIP and hostIP, which the object does not have."""
    keyed = _KEYED.fullmatch(path)
    if keyed:
        return str(pod["metadata"].get(keyed[1], {}).get(keyed[2], ""))
    if path in ("metadata.labels", "metadata.annotations"):
        pairs = pod["metadata"].get(path.partition(".")[2], {})
        return "\n".join(f"{key}={_quoted(value)}" for key, value in sorted(pairs.items()))
    if path.startswith("status."):
        return addresses.get(path.removeprefix("status.").removesuffix("s"), "")
    part, _, name = path.partition(".")
    return str(pod.get(part, {}).get(name, ""))


def resource(reference: Object, container: Object, pod: Object, capacity: Mapping[str, str]) -> str:
    """Return a limit or request of a container in units of the divisor, rounded up, or else the node's capacity."""
    if name := reference.get("containerName"):
        everyone = [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]
        container = next((other for other in everyone if other["name"] == name), container)
    kind, _, what = str(reference["resource"]).partition(".")
    resources = container.get("resources", {})
    asked = resources.get(kind, {}).get(what)
    if asked is None and kind == "requests":
        asked = resources.get("limits", {}).get(what, "0")
    divisor = quantity(str(reference.get("divisor") or "1")) or Decimal(1)
    return str(math.ceil(quantity(str(asked if asked is not None else capacity.get(what, "0"))) / divisor))


def quantity(text: str) -> Decimal:
    """Parse a Kubernetes quantity: 500m, 2Gi, 1e3."""
    match = re.fullmatch(r"([+-]?[0-9.]+)(?:([KMGTPE])i|([numkMGTPE]?)|[eE]([+-]?[0-9]+))", text)
    try:
        if not match:
            raise InvalidOperation
        number = Decimal(match[1])
    except InvalidOperation:
        raise BadConfig(f"{text!r} is not a quantity") from None
    if match[2]:
        return number * (1 << 10 * ("KMGTPE".index(match[2]) + 1))
    return number.scaleb(int(match[4]) if match[4] else _UNITS[match[3] or ""])


def environment(
    container: Object,
    pod: Object,
    first: Mapping[str, str],
    addresses: Mapping[str, str],
    capacity: Mapping[str, str],
    sources: Sources,
) -> dict[str, str]:
    """Return a kubelet's variables, which also replace $(NAME). `first` holds those known before the container's."""
    namespace = pod["metadata"]["namespace"]
    known = dict(first)
    for source in container.get("envFrom", []):
        prefix = source.get("prefix", "")
        for reference, find in (
            (source.get("configMapRef"), sources.config_map),
            (source.get("secretRef"), sources.secret),
        ):
            if reference is None:
                continue
            data = find(namespace, reference["name"])
            if data is None and not reference.get("optional"):
                raise _missing(reference is source.get("secretRef"), reference["name"])
            known.update(
                {f"{prefix}{key}": _text(value) for key, value in (data or {}).items() if _NAME.fullmatch(prefix + key)}
            )
    for variable in container.get("env", []):
        name, source = variable["name"], variable.get("valueFrom")
        if not source:
            known[name] = expand(variable.get("value", ""), known)
        elif reference := source.get("fieldRef"):
            known[name] = field(reference["fieldPath"], pod, addresses)
        elif reference := source.get("resourceFieldRef"):
            known[name] = resource(reference, container, pod, capacity)
        else:
            value = _keyed(source, namespace, sources)
            if value is not None:
                known[name] = value
    return known


def _keyed(source: Object, namespace: str, sources: Sources) -> str | None:
    secret = source.get("secretKeyRef")
    reference = secret or source.get("configMapKeyRef")
    if reference is None:
        raise BadConfig(f"values from {', '.join(source)} are not known here")
    find = sources.secret if secret else sources.config_map
    data = find(namespace, reference["name"])
    if data is not None and reference["key"] in data:
        return _text(data[reference["key"]])
    if reference.get("optional"):
        return None
    if data is None:
        raise _missing(bool(secret), reference["name"])
    kind = "Secret" if secret else "ConfigMap"
    raise BadConfig(f"couldn't find key {reference['key']} in {kind} {namespace}/{reference['name']}")


def _text(value: object) -> str:
    return value.decode(errors="surrogateescape") if isinstance(value, bytes) else str(value)


def _missing(secret: bool, name: str) -> BadConfig:
    return BadConfig(f'{"secret" if secret else "configmap"} "{name}" not found')


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
