"""Fill templates. Templates hold the shape, Python computes values, and no value can change the shape of a document.

Everything printed with `{{ }}` is quoted as JSON, which YAML reads as the same value. The template's author cannot
forget or bypass it; a name missing from the context is an error.
"""

from __future__ import annotations

import hashlib
import json
import re
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpukit.core import paths, resources
from tpukit.core.errors import TpukitError

if TYPE_CHECKING:
    from jinja2 import BytecodeCache, Environment

_NOT_IN_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
"""Characters that JSON allows in a string and YAML does not, or reads as a line break."""


def fill(folder: str, name: str, **context: object) -> str:
    """Render `folder/name.yaml.j2` with the context."""
    return _environment(folder).get_template(f"{name}.yaml.j2").render(context)


def parse(text: str) -> list[dict[str, Any]]:
    """Return the YAML documents of a text."""
    import yaml

    # libyaml is ten times faster; PyYAML lacks it where there was no wheel.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [document for document in yaml.load_all(text, Loader=loader) if document is not None]


def quoted(value: object) -> str:
    """Return a value as JSON on one line that YAML reads as the same value.

    Characters beyond ASCII stay as they are: JSON would write those beyond U+FFFF as two escapes, which YAML reads as
    two characters.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return _NOT_IN_YAML.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


@cache
def _environment(folder: str) -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    def printed(value: object) -> str:
        # An undefined name raises only when it is converted to a string.
        return str(value) if isinstance(value, StrictUndefined) else quoted(value)

    return Environment(  # noqa: S701 (what is escaped here is JSON, not HTML)
        loader=FileSystemLoader(resources.folder(folder)),
        undefined=StrictUndefined,
        finalize=printed,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        bytecode_cache=_compiled(),
    )


def _compiled() -> BytecodeCache | None:
    """Return a cache of compiled templates: compiling one takes as long as the rest of rendering.

    Jinja compares the text of a template and the version of Python, but not the setup of the environment, which is in
    this file.
    """
    from jinja2.bccache import Bucket, FileSystemBytecodeCache

    class Cache(FileSystemBytecodeCache):
        def load_bytecode(self, bucket: Bucket) -> None:
            try:
                super().load_bytecode(bucket)
            except Exception:  # a damaged cache raises many kinds of errors  # noqa: BLE001
                bucket.reset()

        def dump_bytecode(self, bucket: Bucket) -> None:
            with suppress(OSError):  # a full disk: compile again next time
                super().dump_bytecode(bucket)

    try:
        folder = paths.cache() / "templates"
        folder.mkdir(exist_ok=True, mode=0o700)
        setup = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]
    except (OSError, TpukitError):  # nowhere to write
        return None
    return Cache(str(folder), f"{setup}-%s")
