"""The JSON Schema of job files, for editors."""

from __future__ import annotations

from typing import Any

from tpukit.spec.job import JobSpec
from tpukit.spec.model import Model, models

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """Draft 2020-12. Accepts what `tpu` accepts, apart from rules between fields, which it cannot say."""
    parts = {model.__name__: model.schema() for model in _parts(JobSpec)}
    return {"$schema": DIALECT, **JobSpec.schema(), "title": "tpukit job", "$defs": parts}


def _parts(model: type[Model]) -> list[type[Model]]:
    return [part for item in model.fields.values() for part in models(item.kind)]
