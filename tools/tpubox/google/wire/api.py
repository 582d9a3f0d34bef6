"""The vocabulary of an emulated API: its routes, what its operations do at their end, plain requests and answers."""

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
    """What came in by the wire. The path is as it was sent, with its escapes and without a leading slash."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)  # names in small letters
    content: bytes = b""
    base: str = ""  # our address, for links that the caller follows
    caller: tuple[str, int] = ("", 0)  # its address and port
    principal: str = ""  # the service account that asks, as policies name it; "" is the owner of the emulator
    needed: list[str] = field(default_factory=list)  # permissions, gathered while it is answered


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    content: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    lost: bool = False  # the connection is cut before the answer is through
    silence: float = 0.0  # seconds before that


@dataclass(frozen=True, slots=True)
class Call:
    """A request that found its route. `call["project"]` is what stood at {project} in the path."""

    request: Request
    names: Mapping[str, str]
    body: Doc

    def __getitem__(self, name: str) -> str:
        return self.names[name]

    @property
    def query(self) -> Mapping[str, str]:
        return self.request.query

    def flag(self, name: str) -> bool:
        """A yes or no of the query; the Python clients and gcloud write True, others true."""
        return self.query.get(name, "").lower() == "true"

    def mask(self) -> list[str]:
        """Fields of the update mask, as JSON names them; gcloud writes network_config.enable_external_ips. Without a
        mask, the fields that were sent."""
        sent = self.query.get("updateMask", "")
        fields = [camel(name.strip()) for name in sent.split(",") if name]
        return fields or list(self.body)


@dataclass(frozen=True, slots=True)
class Started:
    """The answer of a request that goes on after it: the operation, as it stands when the answer is written."""

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
    """One API: all that this package knows of it as a whole is here, and whoever needs it reads it here."""

    name: str  # the first word of its paths
    service: str = ""  # what a project enables to use it; "" is there without that
    document: str = ""  # the name of its discovery document; "" is one more door of an API that has one
    title: str = ""  # what Google calls it, also in that document
    versions: tuple[str, ...] = ("v1",)  # the first is the one that clients are led to
    schemas: Mapping[str, str] = field(default_factory=dict)  # by version, of an API whose versions' messages differ
    permissions: str = ""  # the first word of its permissions; "" asks for them in its handlers, or for none
    terraform: Mapping[str, str] = field(default_factory=dict)
    """What Terraform's provider calls it, and below which path; unless told, its name and its first version."""
    has_location: Callable[[str], bool] | None = None
    """Which locations it has; another one is refused before anything else is looked at. None sees to it itself."""
    own_front: bool = False
    """Compute Engine and Cloud Storage answer by themselves: they pass over what they do not know, which others refuse,
    their errors have reasons, and the paths of their documents begin with their names."""
    reasons_too: bool = False
    """Errors have reasons beside the word, as recorded of GKE and IAM."""
    xml_errors: bool = False
    operation: Callable[[Doc], Doc] | None = None
    routes: dict[str, list[Route]] = field(default_factory=dict)
    effects: dict[str, Effect] = field(default_factory=dict)
    ticks: list[Callable[[Cloud], None]] = field(default_factory=list)
    furnish: list[Callable[[Cloud, str], None]] = field(default_factory=list)
    """Called once for each project: they make what a new project has."""

    def on(
        self, methods: str, path: str, body: str | None = None, lists: str | None = None
    ) -> Callable[[Handler], Handler]:
        """Answers `methods` ("GET", "PUT PATCH") of this path; `body` is the message that is sent with them.

        `lists` is the message that is listed, where Google takes a filter: the handler's list is narrowed by it. With
        "" the handler sees to the filter itself.
        """

        def register(handler: Handler) -> Handler:
            for method in methods.split():
                self.routes.setdefault(method, []).append(Route(path, _pattern(path), handler, body, lists))
            return handler

        return register

    def on_operation_end(self, *types: str) -> Callable[[Effect], Effect]:
        """What happens when operations of these types end, in one transaction.

        What it returns is called before the operation is done, with nothing locked, and its Refused is the operation's
        error. All of it may happen twice if the emulator is killed in between.
        """

        def register(effect: Effect) -> Effect:
            self.effects.update(dict.fromkeys(types, effect))
            return effect

        return register

    def schema_of(self, path: str) -> str:
        """What the messages of the version that a request's path names are called in `fields.json`."""
        return self.schemas.get("".join(path.split("/")[1:2]), self.document)

    def find(self, method: str, path: str) -> tuple[Route, dict[str, str]] | None:
        for route in self.routes.get(method, ()):
            if found := route.pattern.fullmatch(path):
                return route, {name: unquote(value) for name, value in found.groupdict().items()}
        return None


def _pattern(path: str) -> re.Pattern[str]:
    """`{name}` stands for one part of a path, `{name+}` for the rest of it."""
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
    """A name as JSON has it; Google takes network_config for networkConfig."""
    return re.sub(r"_([a-z0-9])", lambda letter: letter[1].upper(), name)


def merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> Doc:
    """Both, deeply; `over` has the last word, and None in it takes a field away."""
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
    """`under` with these fields as they are in `over`: a map loses what that does not name.

    https://google.aip.dev/134 (a mask names what is replaced)
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
    """What others may see: fields of our own begin with an underscore."""
    return {key: value for key, value in doc.items() if not key.startswith("_")}
