"""The cluster file: what is refused before any request to a cloud, and what Terraform gets."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpukit import catalogue
from tpukit.cluster import ip_ranges
from tpukit.cluster.ip_ranges import Nodes
from tpukit.cluster.spec import _BEYOND_TERRAFORM, ClusterSpec, load
from tpukit.core import resources
from tpukit.core.errors import Invalid
from tpukit.jobs.spec.field_kinds import Choice, Flag, Integer, Items, Kind, Named, Text
from tpukit.jobs.spec.model import Sub

GOOD = {
    "project_id": "my-project-1",
    "region": "us-central2",
    "zone": "us-central2-b",
    "artifact_repository_bucket_name": "my-artifacts",
    "network_name": "tpu-network",
    "subnet_name": "tpu-subnet",
    "cluster_name": "tpu-cluster",
    "tpu_type": "v4-32",
}


def sets(**changes):
    return [f"{key}={value}" for key, value in (GOOD | changes).items() if value is not None]


def refused(*args, **changes) -> list[tuple[str, str, str]]:
    with pytest.raises(Invalid) as caught:
        load(None, [*sets(**changes), *args])
    return [(problem.where, problem.what, problem.hint) for problem in caught.value.problems]


def test_load_file_gives_line_what_and_hint_for_every_problem_at_once(tmp_path):
    file = tmp_path / "cluster.yaml"
    file.write_text(
        "project_id: my-project-1\nregion: us-central2\nzone: us-central1-a\n"
        "artifact_repository_bucket_name: gs://x\nnetwork_name: n\nsubnet_name: s\n"
        "tpu_type: v4-33\npods_ip_range: 10.129.0.0/33\nnum_pools: 2\n"
    )
    with pytest.raises(Invalid) as caught:
        load(file)
    found = {problem.where.rpartition(":")[2]: str(problem) for problem in caught.value.problems}
    assert "us-central1-a is not in us-central2" in found["3"]
    assert "without gs://" in found["4"]
    assert "write v4-32 or v4-64" in found["7"]
    assert "not a range of addresses" in found["8"]
    assert "write num_tpu_pools" in found["9"]
    assert any(problem.what == "cluster_name is missing" for problem in caught.value.problems)
    assert len(caught.value.problems) == 6


def test_load_pools_with_reservations_of_their_own_need_no_common_one():
    pools = {"a": {"reservation_name": "ours"}, "b": {"reservation_name": "theirs", "tpu_type": "v4-16"}}
    spec = load(None, [*sets(capacity="reservation"), f"tpu_pools={json.dumps(pools)}"])
    assert spec.variables()["tpu_pools"]["b"]["reservation_name"] == "theirs"


def test_load_pool_of_a_block_is_of_the_reservation_to_jobs_and_of_the_block_to_terraform():
    block = "mine/reservationBlocks/block-1"
    made = load(None, sets(capacity="reservation", reservation_name=block))
    assert {kind.capacity for kind in made.kinds} == {"reservation:mine"}
    assert made.variables()["reservation_name"] == block
    (problem,) = refused(capacity="reservation", reservation_name="mine/blocks/block-1")
    assert "NAME/reservationBlocks/BLOCK" in problem[2]


@pytest.mark.parametrize(
    ("common", "pool", "where", "what"),
    [
        (
            "on-demand",
            {"reservation_name": "ours"},
            "reservation_name",
            "a reservation is not used with capacity on-demand",
        ),
        ("spot", {"capacity": "reservation"}, "capacity", "the reservation has no name"),
        ("reservation", {}, "--set capacity", "the reservation has no name"),
    ],
)
def test_load_pool_that_is_not_bought_as_it_says_is_refused_where_it_says_so(tmp_path, common, pool, where, what):
    found = refused(f"tpu_pools={json.dumps({'a': pool, 'b': pool})}", capacity=common)
    assert {problem[1].partition(": ")[2] or problem[1] for problem in found} == {what}
    assert all(where in problem[0] or where in problem[1] for problem in found)


def test_load_missing_file_or_folder_is_told_of_cluster_files(tmp_path):
    for path in (tmp_path / "nothing.yaml", tmp_path):
        with pytest.raises(Invalid, match="write the path of a cluster file"):
            load(path)
    (tmp_path / "cluster.yaml").touch()
    with pytest.raises(Invalid, match=re.escape(f"write {tmp_path / 'cluster.yaml'}")):
        load(tmp_path)


def test_load_set_overrides_the_file_and_needs_no_quotes(tmp_path):
    file = tmp_path / "cluster.yaml"
    file.write_text(json.dumps(GOOD))
    spec = load(file, ["num_tpu_pools=4", "gke_version=1.34", "labels={team: research}", "deletion_protection=true"])
    assert (spec.num_tpu_pools, spec.gke_version, spec.deletion_protection) == (4, "1.34", True)
    assert spec.labels == {"team": "research"}


@pytest.mark.parametrize(
    ("changes", "where", "what", "hint"),
    [
        ({"zone": "us-central2-x"}, "--set zone", "not known to have v4-32", "write us-central2-b, or any_zone: true"),
        ({"zone": "moon"}, "--set zone", "'moon' is not allowed", "us-central2-b"),
        ({"zone": "us-east5-a"}, "--set zone", "is not in us-central2", "region: us-east5"),
        (
            {"cpu_pool_machine_type": "e2-standard-4"},
            "--set cpu_pool_machine_type",
            "us-central2-b has no e2 machines",
            "write n2-standard-4, or another of f1, g1, n1, n2",
        ),
        ({"cpu_zone": "us-central1-a"}, "--set cpu_zone", "is not in us-central2", "write a zone of us-central2"),
        ({"tpu_type": "v2-8"}, "--set tpu_type", "GKE has no v2-8", "v4-8"),
        ({"tpu_type": "v4_32"}, "--set tpu_type", "no TPU named", "v4-32"),
        ({"tpu_topology": "4x4x4"}, "--set tpu_topology", "v4-32 has 2x2x4", "leave it out"),
        ({"tpu_num_nodes": 5}, "--set tpu_num_nodes", "v4-32 has 4", "leave it out"),
        (
            {"subnet_ip_range": "10.129.0.1/20"},
            "--set subnet_ip_range",
            "is not the first address",
            "write 10.129.0.0/20",
        ),
        ({"subnet_ip_range": "10.129.0.0"}, "--set subnet_ip_range", "not a range for a subnet", "prefix"),
        (
            {"services_ip_range": "192.168.70.0/24"},
            "--set services_ip_range",
            "shares addresses with pods",
            "10.0.0.0/24 is free",
        ),
        (
            {"pods_ip_range": "192.168.64.0/24"},
            "--set pods_ip_range",
            "holds 256 addresses, and 640",
            "/22 or wider one, such as 10.0.0.0/22",
        ),
        ({"subnet_ip_range": "10.0.0.0/29"}, "--set subnet_ip_range", "holds 4 addresses, and 8", "/28 or wider"),
        ({"capacity": "cheap"}, "--set capacity", "there is no 'cheap'", "spot"),
        ({"capacity": "reservation"}, "--set capacity", "the reservation has no name", "reservation_name"),
        ({"reservation_name": "mine"}, "--set reservation_name", "a reservation is not used", "capacity: reservation"),
        ({"capacity": "flex-start"}, "--set capacity", "v4 is not sold as flex-start", "spot"),
        (
            {
                "capacity": "flex-start",
                "flex_start_queued": True,
                "tpu_type": "v5p-16",
                "region": "us-east5",
                "zone": "us-east5-a",
            },
            "--set flex_start_queued",
            "Google serves no v5p by queued provisioning",
            "created by autoscaling",
        ),
        ({"logging_components": "[WORKLOADS]"}, "--set logging_components", "workloads alone", "SYSTEM_COMPONENTS"),
        ({"num_of_chips": 32}, "--set num_of_chips", "the pools have 16 chips", "write 16"),
        ({"num_tpu_pools": 201}, "--set num_tpu_pools", "201 is too many", "200"),
        ({"tpu_sa_roles": "[roles/owner]"}, "--set tpu_sa_roles", "is not a role for jobs", "roles/logging.logWriter"),
        ({"tpu_sa_name": "gke-sa"}, "--set tpu_sa_name", "must use different accounts", "another name"),
        ({"gke_version": "1.27.3-gke.100"}, "--set gke_version", "no longer creates", "leave it out"),
        ({"authorized_networks": "{all: 0.0.0.0/0}"}, "--set authorized_networks", "whole Internet", "DNS endpoint"),
    ],
)
def test_load_wrong_value_is_refused_where_it_was_written(changes, where, what, hint):
    found = refused(**changes)
    assert len(found) == 1, found
    assert found[0][0] == where
    assert what in found[0][1]
    assert hint in found[0][2]


def test_load_default_pods_range_too_small_for_the_slices_is_refused():
    assert refused(tpu_type="v4-1024")[0][1:] == (
        "pods_ip_range: 192.168.64.0/20 holds 4096 addresses, and 4608 are needed",
        "write a /19 or wider one, such as 10.0.0.0/19; if the cluster exists, add 10.0.0.0/20 to "
        "additional_pods_ip_ranges",
    )


def test_load_pools_by_name_are_each_checked_under_their_name():
    pools = {"a": {"tpu_type": "v4-8"}, "b": {}, "c": {"tpu_topology": "9x9x9"}}
    found = refused(f"tpu_pools={json.dumps(pools)}")
    assert [what for _, what, _ in found] == ["tpu_pools.c.tpu_topology: ct4p-hightpu-4t has no topology '9x9x9'"]


def test_shapes_follow_the_file_pool_by_pool():
    spec = load(None, [*sets(), 'tpu_pools={"a": {"tpu_type": "v4-8"}, "b": {}}'])
    assert {name: shape.name for name, shape in spec.shapes.items()} == {"a": "v4-8", "b": "v4-32"}
    assert list(load(None, sets(num_tpu_pools=2)).shapes) == ["tpu-node-pool-0", "tpu-node-pool-1"]
    assert load(None, sets(tpu_type=None)).shapes["tpu-node-pool-0"].name == "v4-16"
    assert load(None, sets(num_tpu_pools=0)).shapes == {}


def test_slices_in_an_ai_zone_are_taken_with_cpu_machines_that_its_parent_has():
    ai = {"region": "us-central1", "zone": "us-central1-ai1a", "tpu_type": "v6e-8"}
    assert load(None, sets(**ai)).cpu_zone is None
    assert load(None, [*sets(**ai), "cpu_zone=us-central1-b"]).cpu_zone == "us-central1-b"


def test_any_zone_takes_a_zone_that_the_catalogue_does_not_know_and_no_other_region():
    assert load(None, [*sets(zone="us-central2-x"), "any_zone=true"]).zone == "us-central2-x"
    assert "is not in" in refused("any_zone=true", zone="us-east5-a")[0][1]


@pytest.mark.parametrize("generation", ["v3", "v4", "v5e", "v5p", "v6e", "tpu7x"])
def test_load_every_slice_that_gke_offers_is_accepted_in_its_zones_by_name_or_spelt_out(generation):
    room = {"pods_ip_range": "10.0.0.0/9", "subnet_ip_range": "172.16.0.0/16"}
    offered = [s for s in catalogue.slices() if s.generation == generation and s.machine_type]
    assert offered
    for shape in offered:
        place = {"zone": shape.zones[0], "region": shape.zones[0].rpartition("-")[0]}
        spelt = {"tpu_machine_type": shape.machine_type, "tpu_num_nodes": shape.hosts}
        spelt |= {"tpu_topology": shape.topology} if shape.hosts > 1 else {}
        named = {"tpu_type": shape.name} if catalogue.find(shape.name) == shape else spelt
        for words in (named, spelt):
            spec = ClusterSpec.from_json(GOOD | {"tpu_type": None} | place | room | words)
            assert list(spec.shapes.values()) == [shape]


def test_variables_are_what_was_written_and_nothing_else():
    spec = load(None, [*sets(num_tpu_pools=2), "tf_state_bucket=states", "any_zone=true", "gke_version=1.34"])
    assert spec.variables() == GOOD | {"num_tpu_pools": 2, "gke_version": "1.34"}


def test_spec_survives_json():
    spec = load(None, [*sets(), "labels={a: b}", 'tpu_pools={"a": {"tpu_type": "v4-8"}}'])
    assert ClusterSpec.from_json(spec.to_json(given=True)) == spec


def test_state_is_kept_apart_for_each_cluster_unless_told():
    assert load(None, sets()).state_prefix == "gke-tpu-training-environment/tpu-cluster"
    assert load(None, sets()).state_bucket == "my-project-1-tf-state"
    told = load(None, [*sets(), "tf_state_bucket=b-1", "tf_state_prefix=p"])
    assert (told.state_bucket, told.state_prefix) == ("b-1", "p")


def terraform_types(kind: Kind) -> set[str]:
    """Return the Terraform types that take the values of a field."""
    if isinstance(kind, Named):
        return {f"map({item})" for item in terraform_types(kind.kind)}
    if isinstance(kind, Items):
        return {f"{many}({item})" for item in terraform_types(kind.kind) for many in ("list", "set")}
    if isinstance(kind, Sub):
        inner = [f"{name}=optional({terraform_types(one.kind).pop()})" for name, one in kind.model.fields.items()]
        return {f"object({{{''.join(inner)}}})"}
    return {{Text: "string", Choice: "string", Integer: "number", Flag: "bool"}[type(kind)]}


def test_fields_types_and_defaults_are_those_of_the_terraform_modules():
    text = (resources.folder("terraform") / "variables.tf").read_text()
    blocks = dict(re.findall(r'^variable "(\w+)" \{\n(.*?)^\}', text, re.M | re.S))
    assert set(blocks) == set(ClusterSpec.fields) - set(_BEYOND_TERRAFORM)
    for name, block in blocks.items():
        field = ClusterSpec.fields[name]
        (declared,) = re.findall(r"^  type\s*= (.*?)(?=^  \w|\Z)", block, re.M | re.S)
        assert re.sub(r"\s", "", declared) in terraform_types(field.kind), name
        written = re.search(r"^  default\s*= (.*)$", block, re.M)
        assert field.required == (written is None), name
        if written:
            mine = None if field.default is None else field.kind.json(field.default)
            theirs = json.loads(written[1])
            assert (sorted(mine) if isinstance(mine, list) else mine) == theirs, name


@pytest.mark.parametrize(
    ("role", "allowed"),
    [
        ("roles/aiplatform.user", True),
        ("roles/container.defaultNodeServiceAccount", True),
        ("roles/logging.logWriter", True),
        ("roles/serviceusage.serviceUsageConsumer", True),
        ("roles/storage.objectAdmin", True),
        ("projects/p/roles/trainer", True),
        ("roles/owner", False),
        ("roles/editor", False),
        ("roles/viewer", False),
        ("roles/aiplatform.admin", False),
        ("roles/container.defaultNodeServiceAccountX", False),
        ("roles/container.admin", False),
        ("roles/iam.serviceAccountTokenCreator", False),
        ("roles/iam.serviceAccountUser", False),
        ("roles/iam.workloadIdentityUser", False),
        ("roles/datastore.owner", False),
        ("roles/resourcemanager.projectIamAdmin", False),
        ("roles/storage.admin", False),
        ("roles/storagetransfer.user", False),
        ("projects/p/roles/myAdmin", False),
    ],
)
def test_roles_are_allowed_or_refused_alike_here_and_in_terraform(role, allowed):
    text = (resources.folder("terraform") / "variables.tf").read_text()
    found = re.findall(r'can\(regex\("(\^\(projects.*?)", role\)\) && !can\(regex\("(.*?)", replace', text)
    assert len(found) == 2
    for listed, powerful in found:
        theirs = re.search(listed.replace("\\\\", "\\"), role) and not re.search(
            powerful, role.replace("objectAdmin", "")
        )
        assert bool(theirs) == allowed
    if allowed:
        load(None, [*sets(), f"tpu_sa_roles=[{role}]"])
    else:
        with pytest.raises(Invalid):
            load(None, [*sets(), f"tpu_sa_roles=[{role}]"])


@given(st.integers(1, 256))
def test_pod_block_holds_twice_the_pods_and_is_the_smallest_power_of_two_that_does(pods):
    block = ip_ranges.pod_block(pods)
    assert block >= 2 * pods
    assert block == 16 or block // 2 < 2 * pods
    assert block & (block - 1) == 0


@given(st.lists(st.builds(Nodes, st.integers(0, 500), st.integers(8, 256)), min_size=1, max_size=4))
def test_prefix_is_the_narrowest_that_holds_what_is_needed(pools):
    needed = ip_ranges.pods_needed(pools)
    prefix = ip_ranges.prefix(needed)
    assert 2 ** (32 - prefix) >= needed > 2 ** (31 - prefix)


@given(st.text(max_size=30) | st.from_regex(r"[0-9./]{1,20}", fullmatch=True))
def test_parse_any_text_is_a_range_or_a_sentence_with_a_hint(text):
    try:
        assert str(ip_ranges.parse(text)) == text
    except ValueError as error:
        assert len(str(error).split("\n")) == 2 or "\n" in text


@given(
    st.dictionaries(
        st.sampled_from([*ClusterSpec.fields, "other"]),
        st.none()
        | st.booleans()
        | st.integers()
        | st.text(max_size=8)
        | st.lists(st.none())
        | st.just({"a": {"b": 1}}),
        max_size=12,
    )
)
def test_from_json_anything_is_a_spec_or_invalid_and_never_a_crash(document):
    try:
        ClusterSpec.from_json(document)
    except Invalid as error:
        assert error.problems


def test_load_missing_file_is_a_sentence(tmp_path):
    with pytest.raises(Invalid, match="the file does not exist"):
        load(Path(tmp_path / "nope.yaml"))
