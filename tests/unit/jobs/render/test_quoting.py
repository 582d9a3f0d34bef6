"""Quoting: no value changes the shape of a document, and every value arrives unchanged.

The specs are built without validation, because the result must not depend on it.
"""

import string
from dataclasses import replace

import jinja2
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tpukit import catalogue
from tpukit.jobs import plan, render
from tpukit.jobs.plan import Snapshot
from tpukit.jobs.render import template
from tpukit.jobs.spec import JobSpec, Mount, Reservation, Settings

STEADY = settings(derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
PIECES = [
    *(
        "{{",
        "}}",
        "{%",
        "%}",
        "{#",
        "#}",
        "---",
        "...",
        "\n",
        "\r\n",
        "\t",
        ": ",
        " #",
        "- ",
        "? ",
        "&a",
        "*a",
        "!!str ",
    ),
    *('"', "'", "\\", "\\u0041", "`", "$(HOME)", "$$", "${HOME}", "|", ">", "%", "@", "[", "]", "{", "}", ",", "~"),
    *("null", "yes", "N", "0x1f", "1e5", "012", "1_000", ".nan", "=", "<<", "2001-01-01", "\x00", "\x7f", "\x85"),
    *("\u2028", "\u2029", "\ufeff", "\ufffe", "\uffff", "\u00a0", "\U0001f600", "\U0010ffff", "e\u0301"),
]
anything = st.one_of(
    st.text(), st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=3)), min_size=1).map("".join)
)
something = anything.filter(bool)

SPEC = JobSpec.from_json(
    {
        "name": "job",
        "tpu": "v4-8",
        "command": ["a", "b"],
        "image": "image",
        "team": "team",
        "priority": "high",
        "env": {"A": "a", "B": "b"},
        "workdir": "gs://bucket/path",
        "tensorboard": True,
        "capacity": {"reservation": "name"},
        "tags": ["one", "two"],
        "mounts": [{"bucket": "bucket", "path": "/data"}],
    }
)
SETTINGS = Settings.from_json(
    {
        "tensorboard": "projects/p1/locations/us-central1/tensorboards/1",
        "tools_image": "tools",
        "service_account": "who",
    }
)
PLAN = plan.make(SPEC, SETTINGS, "gke", snapshot=Snapshot("digest", "commit", dirty=False))


@st.composite
def plans(draw):
    """Draw a plan in which every text is arbitrary."""
    spec = SPEC.replace(
        **{
            "command": (draw(something), draw(anything)),
            "image": draw(something),
            "team": draw(something),
            "priority": draw(something),
            "env": {f"A{draw(anything)}": draw(anything), f"B{draw(anything)}": draw(anything)},
            "workdir": f"gs://{draw(anything)}",
            "capacity": Reservation.unchecked(reservation=draw(anything).replace("/", "-")),
            "tags": (draw(anything), draw(anything)),
            "mounts": (Mount.unchecked(bucket=draw(anything), path=f"/{draw(something)}", read_only=False),),
        }
    )
    given_settings = SETTINGS.replace(
        **{name: draw(something) for name in ("tensorboard", "tools_image", "service_account")}
    )
    snapshot = Snapshot(draw(anything), draw(something), dirty=False)
    return replace(PLAN, id=draw(something), spec=spec, settings=given_settings, snapshot=snapshot)


def shape(value):
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    return [shape(item) for item in value] if isinstance(value, list) else type(value)


SHAPE = shape(render.documents(PLAN))


@given(plans())
@STEADY
def test_documents_any_text_in_any_field_keeps_the_shape_and_arrives_verbatim(made):
    documents = render.documents(made)
    assert shape(documents) == SHAPE
    (document,) = documents
    slices, uploader = document["spec"]["replicatedJobs"]
    pod = slices["template"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    spec, env = made.spec, {entry["name"]: entry.get("value") for entry in container["env"]}
    assert document["metadata"]["name"] == document["metadata"]["labels"]["tpukit.dev/job"] == made.id
    assert document["metadata"]["namespace"] == spec.team
    assert document["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] == spec.priority
    assert container["image"] == spec.image
    assert tuple(map(kubelet, container["args"])) == spec.command
    assert {name: kubelet(env[name]) for name in spec.env} == spec.env
    assert kubelet(env["TPUKIT_WORKDIR"]) == spec.workdir
    assert pod["serviceAccountName"] == made.settings.service_account
    assert pod["nodeSelector"]["cloud.google.com/reservation-name"] == spec.capacity.reservation
    (mount,) = spec.mounts
    assert pod["volumes"][-1]["csi"]["volumeAttributes"]["bucketName"] == mount.bucket
    assert container["volumeMounts"][-1]["mountPath"] == mount.path
    (container,) = uploader["template"]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == made.settings.tools_image
    assert kubelet(container["command"][4]) == f"{spec.workdir}/tensorboard"


VARIABLES = dict.fromkeys((*string.ascii_uppercase, "HOME", "id", ""), "expanded")


def kubelet(text):
    """Expand a value as the kubelet does (third_party/forked/golang/expansion of Kubernetes)."""
    out, at = [], 0
    while at < len(text):
        char, after = text[at], text[at + 1 : at + 2]
        end = text.find(")", at)
        if char != "$" or not after:
            out.append(char)
            at += 1
        elif after == "$":
            out.append("$")
            at += 2
        elif after == "(" and end >= 0:
            name = text[at + 2 : end]
            out.append(VARIABLES.get(name, f"$({name})"))
            at = end + 1
        else:
            out.append(char + after)
            at += 2
    return "".join(out)


@given(something)
@STEADY
def test_queues_any_team_keeps_the_shape_and_arrives_verbatim(team):
    quotas = {catalogue.find("v4-32"): 2}
    plain = render.queues(quotas, ["team"], cpus=6, memory_gb=24)
    made = render.queues(quotas, [team], cpus=6, memory_gb=24)
    assert shape(made) == shape(plain)
    (queue,) = [document for document in made if document["kind"] == "LocalQueue"]
    assert queue["metadata"] == {"name": team, "namespace": team}


@given(st.recursive(st.none() | st.booleans() | st.integers() | anything, st.lists, max_leaves=5))
@STEADY
def test_quoted_value_reads_back_from_yaml_on_one_line(value):
    quoted = template.quoted(value)
    assert quoted.splitlines() == [quoted]
    text = f"key: {quoted}\n"
    assert template.parse(text) == [{"key": value}]
    assert yaml.safe_load(text) == {"key": value}  # for installations without libyaml


@pytest.fixture
def fill(tmp_path, monkeypatch):
    """Return a function that fills a template given as text."""
    monkeypatch.setattr("tpukit.core.resources.folder", lambda name: tmp_path)

    def fill(shape, **context):
        (tmp_path / "x.yaml.j2").write_text(shape)
        return template.fill(str(tmp_path), "x", **context)

    return fill


def test_fill_name_that_the_context_lacks_is_an_error(fill):
    with pytest.raises(jinja2.UndefinedError, match="nmae"):
        fill("a: {{ job.nmae }}\n", job=object())


def test_fill_author_cannot_print_a_value_unquoted(fill):
    text = '"\nb: 1'
    filled = fill("a: {{ text }}\nb: {{ text | safe }}\nc: {{ text ~ '' }}\n", text=text)
    assert template.parse(filled) == [dict.fromkeys("abc", text)]
