"""Requests generated from the OpenAPI document, valid or not, get only answers that the document lists."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from tpukit.code_queue import claims, rest
from tpukit.code_queue.access import Access
from tpukit.code_queue.client import Client
from tpukit.code_queue.decide import Outcome
from tpukit.code_queue.records import TPU_JOBS
from tpukit.code_queue.rest_document import openapi as document
from tpukit.jobs.reasons import Reason
from tpukit.kernel.store import Holder
from tpukit.kernel.store.sqlite import SqliteStore

TOKEN = "a-token-of-this-test"
EXAMPLES = 12
OPERATIONS = [
    (method.upper(), path, mode)
    for path, item in document()["paths"].items()
    for method in item
    if method in ("get", "post")
    for mode in ("positive", "negative")
    if mode == "positive" or "{" in path or "parameters" in item[method] or "requestBody" in item[method]
]


@pytest.fixture(scope="module")
def schema(tmp_path_factory):
    from schemathesis import openapi  # takes half a second, which test collection should not pay

    folder = tmp_path_factory.mktemp("rest")
    store = SqliteStore(folder / "store.db")
    client = Client(store)
    key = client.submit("result = 1", unique="done")
    claims.finish(store, claims.take_one(store, Holder("w"), store.get(TPU_JOBS, key)), Outcome(Reason.DONE, "1"))
    described = document()
    for path, item in described["paths"].items():
        if "{job_id}" in path:  # otherwise no request names an existing job
            item["parameters"][0]["schema"]["examples"] = [key]
    made = openapi.from_dict(described)
    made.app = rest.app(client, Access(TOKEN), str(folder / "results"))
    yield made
    store.close()


@pytest.mark.parametrize(("method", "path", "mode"), OPERATIONS)
def test_every_answer_is_one_that_the_document_promises(schema, method, path, mode):
    from schemathesis import GenerationMode

    @seed(14)
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=schema[path][method].as_strategy(generation_mode=GenerationMode(mode)))
    def requests(case):
        case.call_and_validate(headers={"Authorization": f"Bearer {TOKEN}"})

    requests()
