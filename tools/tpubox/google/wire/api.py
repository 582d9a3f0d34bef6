"""The vocabulary of an emulated API: its routes, the effects of its operations, plain requests and answers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from tpubox.google.wire.sources import EMULATOR
from tpubox.google.wire.state import Doc

if TYPE_CHECKING:
    from tpubox.google.wire.cloud import Cloud


@dataclass(frozen=True, slots=True)
class Request:
    """An HTTP request. The path is as sent, with its escapes and without a leading slash."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)  # names in lower case
    content: bytes = b""
    base: str = ""  # the emulator's address, for links that the caller follows
    caller: tuple[str, int] = ("", 0)  # address and port
    principal: str = ""  # the calling service account, as policies name it; "" is the owner of the emulator
    needed: list[str] = field(default_factory=list)  # permissions, collected while the request is served


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    content: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    lost: bool = False  # the connection is closed before the answer is complete
    silence: float = 0.0  # seconds before the connection is closed


@dataclass(frozen=True, slots=True)
class Call:
    """A request with its route. `call["project"]` is the value of {project} in the path."""

    request: Request
    names: Mapping[str, str]
    body: Doc

    def __getitem__(self, name: str) -> str:
        return self.names[name]

    @property
    def query(self) -> Mapping[str, str]:
        return self.request.query

    def flag(self, name: str) -> bool:
        """Return a boolean of the query. The Python clients and gcloud write True, others true."""
        return self.query.get(name, "").lower() == "true"

    def mask(self) -> list[str]:
        """Return the fields of the update mask under their JSON names; without a mask, the fields that were sent.

        gcloud writes network_config.enable_external_ips.
        """
        sent = self.query.get("updateMask", "")
        fields = [camel(name.strip()) for name in sent.split(",") if name]
        return fields or list(self.body)


@dataclass(frozen=True, slots=True)
class Started:
    """The answer that a request started an operation, shown in its state when the answer is written."""

    id: str


Handler = Callable[["Cloud", Call], "Doc | Answer | Started"]
After = Callable[[], None]
Effect = Callable[["Cloud", Doc], "After | None"]


@dataclass(frozen=True, slots=True)
class Route:
    path: str
    pattern: re.Pattern[str]
    handler: Handler
    body: str | None
    lists: str | None


@dataclass(slots=True)
class Api:
    """One API, with everything that this package knows about it as a whole."""

    name: str  # first segment of its paths
    service: str = ""  # service that a project enables to use it; "" needs none
    document: str = ""  # name of its discovery document; "" for a further entry point of an API that has one
    title: str = ""  # Google's name, as in that document
    versions: tuple[str, ...] = ("v1",)  # clients are directed to the first
    schemas: Mapping[str, str] = field(default_factory=dict)  # by version, if the messages of the versions differ
    permissions: str = ""  # first word of its permissions; "" if its handlers check them, or it has none
    terraform: Mapping[str, str] = field(default_factory=dict)
    """Terraform's names of the API and the paths below; by default its name and its first version."""
    has_location: Callable[[str], bool] | None = None
    """Test of its locations. Others are refused before anything else; with None the API checks them itself."""
    own_front: bool = False
    """True for Compute Engine and Cloud Storage, which have fronts of their own.

    They ignore unknown fields, which others refuse; their errors have reasons; and the paths of their documents start
    with their names.
    """
    reasons_too: bool = False
    """True if errors have reasons in addition to the status, as recorded of GKE and IAM."""
    xml_errors: bool = False
    operation: Callable[[Doc], Doc] | None = None
    routes: dict[str, list[Route]] = field(default_factory=dict)
    effects: dict[str, Effect] = field(default_factory=dict)
    ticks: list[Callable[[Cloud], None]] = field(default_factory=list)
    furnish: list[Callable[[Cloud, str], None]] = field(default_factory=list)
    """Functions called once for each project, which create what a new project has."""

    def on(
        self, methods: str, path: str, body: str | None = None, lists: str | None = None
    ) -> Callable[[Handler], Handler]:
        """Register a handler of `methods` ("GET", "PUT PATCH") of this path.

        `body` is the message of the request. `lists` is the listed message, if Google accepts a filter: the handler's
        list is then filtered by it. With "" the handler applies the filter itself.
        """

        def register(handler: Handler) -> Handler:
            for method in methods.split():
                self.routes.setdefault(method, []).append(Route(path, _pattern(path), handler, body, lists))
            return handler

        return register

    def on_operation_end(self, *types: str) -> Callable[[Effect], Effect]:
        """Register the effect of operations of these types when they end, in one transaction.

        The returned function is called before the operation is done, without locks; a Refused from it is the
        operation's error. Both may run twice if the emulator is killed in between.
        """

        def register(effect: Effect) -> Effect:
            self.effects.update(dict.fromkeys(types, effect))
            return effect

        return register

    def schema_of(self, path: str) -> str:
        """Return the key in `fields.json` for the API version of a request's path."""
        return self.schemas.get("".join(path.split("/")[1:2]), self.document)

    def find(self, method: str, path: str) -> tuple[Route, dict[str, str]] | None:
        for route in self.routes.get(method, ()):
            if found := route.pattern.fullmatch(path):
                return route, {name: unquote(value) for name, value in found.groupdict().items()}
        return None


def _pattern(path: str) -> re.Pattern[str]:
    """Compile a path: `{name}` matches one segment, `{name+}` the rest of the path."""
    text = ""
    for part in re.split(r"(\{[a-z]+\+?\})", path):
        if part.endswith("+}"):
            text += f"(?P<{part[1:-2]}>.+)"
        elif part.startswith("{"):
            text += f"(?P<{part[1:-1]}>[^/:]+)"
        else:
            text += re.escape(part)
    return re.compile(text)


def camel(name: str) -> str:
    """Return the JSON name of a field; Google accepts network_config for networkConfig."""
    return re.sub(r"_([a-z0-9])", lambda letter: letter[1].upper(), name)


def merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> Doc:
    """Merge both deeply; `over` takes precedence, and None in it removes a field."""
    result = dict(under)
    for key, value in over.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(result.get(key), Mapping):
            result[key] = merged(result[key], value)
        else:
            result[key] = value
    return result


def replaced(under: Mapping[str, Any], over: Mapping[str, Any], fields: Iterable[str]) -> Doc:
    """Return `under` with these fields as they are in `over`: a map loses the keys that are not in it.

    https://google.aip.dev/134 (a mask names the fields to replace)
    """
    result = dict(under)
    for name in fields:
        if "." in name:
            raise EMULATOR.invalid(f"The emulator cannot change a part of a field: {name}.")
        if over.get(name) is None:
            result.pop(name, None)
        else:
            result[name] = over[name]
    return result


def public(doc: Mapping[str, Any]) -> Doc:
    """Return the public fields; private ones start with an underscore."""
    return {key: value for key, value in doc.items() if not key.startswith("_")}
