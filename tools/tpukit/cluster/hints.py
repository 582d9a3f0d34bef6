"""Complete hints with the cluster file, the variables and Terraform's folder, so that users can run them as shown.

Errors are raised with `tpu cluster apply` or `terraform untaint ADDRESS`; the remaining arguments are known only where
the command line is.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tpukit.core.errors import Invalid, Problem, TpukitError

_TPU = re.compile(r"`tpu cluster (?P<verb>[a-z]+)(?P<rest>[^`]*)`")
_TERRAFORM = re.compile(r"(?P<program>\b(?:terraform|tofu)) (?P<verb>force-unlock|untaint|import|state|output)\b")
_SPEC_VERBS = ("up", "bootstrap", "plan", "apply", "destroy", "status", "addons", "credentials")


@dataclass(frozen=True, slots=True)
class Completion:
    """Arguments that every command line about this cluster needs."""

    words: Sequence[str] = ()  # cluster.yaml --set tpu_type=v4-32
    folder: Path | None = None  # of Terraform's files
    program: str = "terraform"

    def text(self, text: str) -> str:
        return _TERRAFORM.sub(self._terraform, _TPU.sub(self._tpu, text))

    def error(self, error: TpukitError) -> TpukitError:
        """Return the same error with complete command lines in it."""
        if isinstance(error, Invalid):
            problems = [Problem(one.where, self.text(one.what), self.text(one.hint)) for one in error.problems]
            return type(error)(problems)
        return type(error)(self.text(error.message), hint=self.text(error.hint))

    def _tpu(self, found: re.Match[str]) -> str:
        if found["verb"] not in _SPEC_VERBS:
            return found[0]
        return f"`tpu cluster {found['verb']}{''.join(f' {shlex.quote(word)}' for word in self.words)}{found['rest']}`"

    def _terraform(self, found: re.Match[str]) -> str:
        if self.folder is None:
            return found[0]
        return f"{self.program} -chdir={shlex.quote(str(self.folder))} {found['verb']}"
