"""JSON Schema of job and fleet files, for editors."""

from __future__ import annotations

from typing import Any

from tpukit.jobs.spec.job import JobSpec
from tpukit.jobs.spec.model import Model, models

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema(model: type[Model] = JobSpec, title: str = "tpukit job") -> dict[str, Any]:
    """Return the schema (draft 2020-12). It accepts what `tpu` accepts, except for rules between fields."""
    parts = {part.__name__: part.schema() for part in _parts(model)}
    return {"$schema": DIALECT, **model.schema(), "title": title, "$defs": parts}


def _parts(model: type[Model]) -> list[type[Model]]:
    return [part for item in model.fields.values() for part in models(item.kind)]
