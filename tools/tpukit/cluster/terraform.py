"""Terraform or OpenTofu: find it, check its version, and run it. Its output is read as it appears."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tpukit.cluster import diagnosis, programs, terraform_events
from tpukit.cluster.programs import Command, Outcome
from tpukit.cluster.terraform_events import Diagnostic, Event
from tpukit.core.errors import Conflict, NotFound, TpukitError

MINIMUM = (1, 5, 7)
"""The newest version that Infrastructure Manager runs, so the modules require no newer one."""
PROGRAMS = ("terraform", "tofu")
PLAN_FILE = "shown.tfplan"

_QUIET = {"TF_IN_AUTOMATION": "1", "TF_INPUT": "0", "CHECKPOINT_DISABLE": "1"}
_LOCK = "-lock-timeout=30s"
_LOG_FILE = "output.jsonl"


def program() -> str:
    """Return the installed program; Terraform if both are installed, or neither."""
    return next((name for name in PROGRAMS if shutil.which(name)), PROGRAMS[0])


def check(name: str) -> str:
    """Return the version, or raise if it is too old."""
    need = ".".join(map(str, MINIMUM))
    if shutil.which(name) is None:
        raise NotFound(
            "neither terraform nor tofu is on PATH",
            hint=f"install Terraform {need} or newer (https://developer.hashicorp.com/terraform/install) or OpenTofu, "
            "or use --via cloud-build, which needs gcloud alone",
        )
    done = programs.run(programs.command(name, "version", "-json"))
    try:
        version = str(json.loads(done.output)["terraform_version"])
        number = tuple(int(part) for part in version.partition("-")[0].split("."))
    except (ValueError, KeyError, TypeError):
        raise TpukitError(
            f"`{name} version -json` did not print its version", hint=f"install Terraform {need} or newer"
        ) from None
    if number < MINIMUM:
        raise TpukitError(f"{name} {version} is too old", hint=f"install {need} or newer")
    return version


@dataclass(frozen=True, slots=True)
class Terraform:
    """Command lines for one folder, and how to run them."""

    program: str
    folder: Path
    inherit: tuple[int, ...] = ()  # files that a run holds open: the lock of its folder

    def init(self, backend: Mapping[str, str]) -> Command:
        # Without -reconfigure, a changed bucket would prompt whether to copy the state there.
        config = (f"-backend-config={key}={value}" for key, value in backend.items())
        return self._command("init", "-input=false", "-no-color", "-reconfigure", *config)

    def plan(self, variables: Mapping[str, Any], *, destroy: bool = False) -> Command:
        way = ("-destroy",) if destroy else ()
        return self._command("plan", *way, "-input=false", "-json", _LOCK, f"-out={PLAN_FILE}", *_values(variables))

    def show(self) -> Command:
        return self._command("show", "-json", PLAN_FILE)

    def apply(self) -> Command:
        return self._command("apply", "-input=false", "-json", _LOCK, PLAN_FILE)

    def adopt(self, variables: Mapping[str, Any], address: str, name: str) -> Command:
        """Return the command that imports the cloud resource `name` as the resource at `address`."""
        return self._command("import", "-input=false", _LOCK, *_values(variables), address, name)

    def output(self) -> Command:
        return self._command("output", "-json")

    def unlock(self, lock: str) -> Command:
        return self._command("force-unlock", "-force", lock)

    def state_list(self) -> Command:
        return self._command("state", "list")

    def _command(self, *argv: str) -> Command:
        return Command((self.program, f"-chdir={self.folder}", *argv))

    def run(
        self,
        command: Command,
        doing: str,
        *,
        on_event: Callable[[Event], None] = lambda event: None,
        on_leave: Callable[[int], None] = lambda presses: None,
        hint: Callable[[Diagnostic], str] = lambda found: "",
    ) -> Outcome:
        """Run to the end. Raise Terraform's errors, each with its `hint`.

        The outcome tells whether the run was interrupted.
        """
        wrong: list[Diagnostic] = []

        def take(line: str) -> None:
            event = terraform_events.parse(line)
            if isinstance(event, Diagnostic) and event.severity == "error":
                wrong.append(event)
            if event:
                on_event(event)

        log = self.folder / _LOG_FILE
        done = programs.stream(command, take, on_leave=on_leave, env=_QUIET, log=log, inherit=self.inherit)
        if done.presses > 1:
            raise Conflict(
                f"{doing} was killed before it finished",
                hint="the state may be locked, and unfinished changes are missing from it: "
                f"`{self.program} -chdir={self.folder} force-unlock ID`, then plan again",
            )
        if done.code and not done.presses:
            raise diagnosis.error(wrong, doing, hint) if wrong else diagnosis.failure(self.program, done.errors, doing)
        return done

    def read(self, command: Command, doing: str) -> str:
        """Return the command's output without printing it: plans and outputs may hold secrets."""
        done = programs.run(command)
        if done.code:
            raise diagnosis.failure(self.program, done.errors, doing)
        return done.output


def _values(variables: Mapping[str, Any]) -> list[str]:
    return [f"-var={name}={_value(value)}" for name, value in variables.items()]


def _value(value: Any) -> str:
    """Return a value for `-var`: text unchanged, the rest as an expression without interpolation."""
    return value if isinstance(value, str) else json.dumps(value).replace("${", "$${").replace("%{", "%%{")
