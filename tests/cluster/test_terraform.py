"""The Terraform modules with the real provider's schema: their own tests, refusals, and effects of changes."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TERRAFORM = ROOT / "terraform"
MODULES = sorted(folder.name for folder in (TERRAFORM / "modules").iterdir())

GUIDE = {
    "project_id": None,
    "region": None,
    "zone": None,
    "artifact_repository_bucket_name": None,
    "network_name": None,
    "subnet_name": None,
    "subnet_ip_range": '"10.129.0.0/20"',
    "pods_ip_range": '"192.168.64.0/20"',
    "services_ip_range": '"192.168.80.0/20"',
    "cluster_name": None,
    "gke_version": "null",
    "cluster_description": '"GKE cluster for running TPU training workloads"',
    "cpu_pool_node_count": "3",
    "cpu_pool_machine_type": '"n2-standard-4"',
    "cpu_pool_disk_type": "null",
    "cpu_pool_disk_size": "200",
    "tpu_sa_name": '"cloud-tpu-sa"',
    "tpu_sa_roles": ...,
    "gke_sa_name": '"gke-sa"',
    "gke_sa_roles": ...,
    "tpu_namespace": '"tpu-training"',
    "tpu_machine_type": "null",
    "tpu_topology": "null",
    "tpu_num_nodes": "null",
    "num_tpu_pools": "1",
    "enable_tpu_autoscaling": "false",
    "tpu_node_pool_name_prefix": '"tpu-node-pool"',
    "multislice_group_name": '"multi-slice-group"',
    "force_destroy": "false",
    "tpu_type": "null",
    "capacity": '"on-demand"',
}
"""Variables of the guide with their defaults: None if required, ... where the guide's default gave too much."""

ASKED = {
    "project_id": "tpu-project",
    "region": "us-central2",
    "zone": "us-central2-b",
    "network_name": "tpu-network",
    "subnet_name": "tpu-subnet",
    "cluster_name": "tpu-cluster",
    "artifact_repository_bucket_name": "tpu-artifacts",
    "tpu_type": "v4-32",
    "num_tpu_pools": 4,
    "firestore_database": "tpu-jobs",
    "create_service_accounts": True,
}


class Workspace:
    """A folder with a copy of a module, initialized without a backend."""

    def __init__(self, module: Path, folder: Path, environment: dict[str, str]) -> None:
        self.folder, self.environment = folder, environment
        shutil.copytree(module, folder, ignore=shutil.ignore_patterns(".terraform*", "backend.tf"))
        assert self.run("init", "-backend=false", "-no-color").returncode == 0

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = ["terraform", *words]
        return subprocess.run(command, cwd=self.folder, env=self.environment, capture_output=True, text=True)

    def plan(self, variables: dict) -> dict:
        """Return the plan for these variables from the current state, without requests to a cloud."""
        done = self.refused_or_planned(variables)
        assert done.returncode == 0, done.stderr
        return json.loads(self.run("show", "-json", "plan").stdout)

    def refused_or_planned(self, variables: dict) -> subprocess.CompletedProcess[str]:
        (self.folder / "terraform.tfvars.json").write_text(json.dumps(variables))
        return self.run("plan", "-refresh=false", "-no-color", "-out=plan")

    def refusal(self, variables: dict) -> str:
        """Return the text of the error, without Terraform's frame."""
        done = self.refused_or_planned(variables)
        assert done.returncode == 1, "nothing was refused"
        return re.sub(r"[\s│╷╵]+", " ", done.stderr)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, terraform_environment: dict[str, str]) -> Workspace:
    return Workspace(TERRAFORM, tmp_path_factory.mktemp("root") / "terraform", terraform_environment)


@pytest.fixture(scope="module")
def environment_plan(root: Workspace) -> dict:
    return root.plan(ASKED)


def resources(plan: dict, kind: str) -> list[dict]:
    changes = [one for one in plan["resource_changes"] if one["type"] == kind]
    assert changes, f"no {kind} in the plan"
    return [one["change"]["after"] for one in changes]


def variables_of(text: str) -> dict[str, str | None]:
    """Return the name and default of every variable, None for one without a default."""
    blocks = re.findall(r'^variable "(\w+)" \{\n(.*?)^\}', text, re.MULTILINE | re.DOTALL)
    found = {name: re.search(r"^  default\s+= (.*)$", body, re.MULTILINE) for name, body in blocks}
    return {name: default[1] if default else None for name, default in found.items()}


def test_format_is_terraforms_own(terraform_environment):
    command = ["terraform", "fmt", "-check", "-recursive", "-diff"]
    done = subprocess.run(command, cwd=TERRAFORM, env=terraform_environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_configuration_is_valid(root):
    done = root.run("validate", "-json")
    assert json.loads(done.stdout)["diagnostics"] == []


@pytest.mark.parametrize("file", sorted(path.name for path in (TERRAFORM / "tests").glob("*.tftest.hcl")))
def test_terraform_test_passes(root, file):
    done = root.run("test", "-no-color", f"-filter=tests/{file}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"Success! [1-9]\d* passed, 0 failed", done.stdout)


def test_terraform_tests_do_not_keep_opentofu_from_starting():
    """OpenTofu reads them even for `init`, and does not support mocks in separate files."""
    for path in (TERRAFORM / "tests").glob("*.tftest.hcl"):
        mocks = re.findall(r'^mock_provider "\w+" \{\n(.*?)^\}', path.read_text(), re.MULTILINE | re.DOTALL)
        assert not [mock for mock in mocks if re.search(r"^\s*source\b", mock, re.MULTILINE)], path


@pytest.mark.parametrize("module", MODULES)
def test_terraform_test_covers_module(module):
    texts = [path.read_text() for path in (TERRAFORM / "tests").glob("*.tftest.hcl")]
    assert any(f'source = "./modules/{module}"' in text for text in texts)


def test_terraform_test_notices_a_broken_module(tmp_path, terraform_environment):
    """Remove the trigger: then a new topology would be sent as an update, which GKE refuses."""
    broken = Workspace(TERRAFORM, tmp_path / "terraform", terraform_environment)
    pools = broken.folder / "modules" / "tpu_pools" / "main.tf"
    text = pools.read_text()
    assert "replace_triggered_by = [terraform_data.shape[each.key], " in text
    pools.write_text(text.replace("[terraform_data.shape[each.key], ", "["))
    done = broken.run("test", "-no-color", "-filter=tests/changes.tftest.hcl")
    assert done.returncode == 1
    assert re.search(r'run "another_topology_replaces_that_pool_alone"... fail', done.stdout)


def test_variables_of_the_guide_are_there_with_their_defaults():
    found = variables_of((TERRAFORM / "variables.tf").read_text())
    assert {name: found[name] for name, default in GUIDE.items() if default is not ...} == {
        name: default for name, default in GUIDE.items() if default is not ...
    }
    assert "roles/storage.objectAdmin" not in str(found)


def test_readme_tables_are_current():
    spec = importlib.util.spec_from_file_location("readme", TERRAFORM / "readme.py")
    readme = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(readme)
    for page, wanted in readme.pages():
        assert page.read_text() == wanted, f"{page}: run `python terraform/readme.py`"
    text = (TERRAFORM / "README.md").read_text()
    assert all(f"| `{name}` |" in text for name in GUIDE)


def test_what_is_counted_now_is_moved_from_the_address_it_had():
    """Require `moved` blocks, so that upgrades do not report or guess replacements."""
    counted = 0
    for folder in (TERRAFORM / "modules").iterdir():
        text = "".join(path.read_text() for path in folder.glob("*.tf"))
        for kind, name, body in re.findall(r'^resource "(\w+)" "(\w+)" \{\n(.*?)^\}', text, re.MULTILINE | re.DOTALL):
            if re.search(r"^  count = ", body, re.MULTILINE):
                counted += 1
                assert f"  from = {kind}.{name}\n  to   = {kind}.{name}[0]\n" in text, f"{folder.name}: {kind}.{name}"
    assert counted >= 7


def test_catalogue_of_the_module_equals_the_packages():
    copy = TERRAFORM / "modules" / "tpu_shapes" / "tpus.json"
    assert copy.read_bytes() == (ROOT / "tools" / "tpukit" / "catalogue" / "tpus.json").read_bytes()


def test_nothing_is_taken_from_a_registry_unpinned():
    """Require local modules and provider bounds: an upstream module change once enabled deletion protection."""
    for path in TERRAFORM.rglob("*.tf"):
        if ".terraform" in path.parts:
            continue
        for source in re.findall(r'^  source\s*= "([^"]+)"', path.read_text(), re.MULTILINE):
            assert source.startswith(("./", "../../modules/")), f"{path}: {source}"
    versions = [path.read_text() for path in TERRAFORM.glob("**/versions.tf") if "hashicorp/google" in path.read_text()]
    assert versions
    assert all(re.search(r'^      version = ">= 7\.[0-9]+, < 9"$', text, re.MULTILINE) for text in versions)


def test_google_is_the_only_provider(environment_plan):
    """Exclude a Kubernetes provider: configured from a cluster of the same run, it breaks when the cluster changes."""
    builtin, google = sorted({one["provider_name"].split("/", 1)[1] for one in environment_plan["resource_changes"]})
    assert (builtin, google) == ("builtin/terraform", "hashicorp/google")


def test_modules_configure_no_provider_and_need_no_newer_terraform():
    for path in (TERRAFORM / "modules").rglob("*.tf"):
        text = path.read_text()
        assert 'provider "' not in text, path
    for path in (TERRAFORM / "modules").rglob("versions.tf"):
        assert 'required_version = ">= 1.5.7"' in path.read_text()


def test_validations_look_at_their_own_variable_alone():
    """Forbid references to other variables, which need Terraform 1.9: Infrastructure Manager runs 1.5.7."""
    blocks = re.findall(
        r'^variable "(\w+)" \{\n(.*?)^\}', (TERRAFORM / "variables.tf").read_text(), re.MULTILINE | re.DOTALL
    )
    for name, body in blocks:
        assert set(re.findall(r"\bvar\.(\w+)", body)) <= {name}


REFUSED = {
    "no-such-type": ({"tpu_type": "v4-33"}, "there is no tpu_type v4-33. Write one of v4-8, v4-16, v4-32,"),
    "no-such-family": ({"tpu_type": "gpu"}, "there is no tpu_type gpu. Write one like v4-32"),
    "vm-only": ({"tpu_type": "v2-8"}, "tpu_type v2-8 exists as TPU VMs only"),
    "type-against-topology": (
        {"tpu_type": "v4-32", "tpu_topology": "2x2x2"},
        "tpu_type v4-32 is ct4p-hightpu-4t with topology 2x2x4 on 4 hosts. Leave tpu_machine_type, tpu_topology",
    ),
    "type-against-machine": ({"tpu_type": "v4-32", "tpu_machine_type": "ct5p-hightpu-4t"}, "tpu_type v4-32 is ct4p"),
    "type-against-nodes": ({"tpu_type": "v4-32", "tpu_num_nodes": 2}, "tpu_type v4-32 is ct4p-hightpu-4t"),
    "no-such-machine": (
        {"tpu_machine_type": "n1-standard-4", "tpu_topology": "2x2x2", "tpu_num_nodes": 2},
        "there is no TPU machine type n1-standard-4. Write one of ct3-hightpu-4t",
    ),
    "machine-alone": ({"tpu_machine_type": "ct5p-hightpu-4t"}, "ct5p-hightpu-4t alone is no slice. Write tpu_topology"),
    "nodes-alone": (
        {"tpu_num_nodes": 4},
        "4 hosts of ct4p-hightpu-4t can be wired as 2x2x4. Write tpu_topology as well",
    ),
    "no-single-host": (
        {"tpu_machine_type": "ct3p-hightpu-4t", "tpu_num_nodes": 1},
        "ct3p-hightpu-4t has no slice of one host. Write tpu_topology",
    ),
    "no-such-topology": (
        {"tpu_topology": "3x3x3", "tpu_num_nodes": 7},
        "ct4p-hightpu-4t has no topology 3x3x3. Write one of 2x2x2, 2x2x4, 2x4x4",
    ),
    "single-host-machine": (
        {"tpu_machine_type": "ct5lp-hightpu-8t", "tpu_topology": "4x4", "tpu_num_nodes": 2},
        "ct5lp-hightpu-8t makes slices of one host only. Leave tpu_topology out and write tpu_num_nodes = 1",
    ),
    "topology-against-nodes": (
        {"tpu_topology": "2x2x4", "tpu_num_nodes": 2},
        'topology 2x2x4 of ct4p-hightpu-4t has 4 hosts. Write tpu_num_nodes = 4, or tpu_topology = "2x2x2" for 2',
    ),
    "single-host-with-topology": (
        {"tpu_topology": "2x2x1", "tpu_num_nodes": 1},
        "a slice of one host takes no topology on GKE. Leave tpu_topology out and write tpu_num_nodes = 1, or write "
        'only tpu_type = "v4-8"',
    ),
    "no-such-capacity": ({"capacity": "cheap"}, "there is no capacity cheap. Write on-demand, spot, reservation or"),
    "reservation-unnamed": (
        {"capacity": "reservation"},
        "capacity is reservation, and no reservation is named. Write reservation_name",
    ),
    "reservation-unused": (
        {"reservation_name": "ours"},
        'reservation_name is ours, and capacity is on-demand. Write capacity = "reservation"',
    ),
    "flex-start-too-old": ({"tpu_type": "v4-32", "capacity": "flex-start"}, "flex-start is not offered for v4"),
    "flex-start-old-gke": (
        {"tpu_type": "v6e-16", "capacity": "flex-start"},
        "flex-start needs GKE 1.33 or newer, and gke_version is 1.32. Leave gke_version out",
    ),
    "tpu7x-old-gke": ({"tpu_type": "tpu7x-8"}, "tpu7x needs GKE 1.34 or newer, and gke_version is 1.32"),
    "tpu7x-without-policy": (
        {"tpu_type": "tpu7x-128", "workload_policy": ""},
        "tpu7x-128 has 16 hosts, which need a workload policy. Leave tpu_workload_policy out to have one made",
    ),
    "a-name-of-a-pool-that-is-longer-than-forty": ({}, "the name of a pool has at most 40 small letters"),
}


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory, terraform_environment: dict[str, str]) -> Workspace:
    folder = tmp_path_factory.mktemp("shapes") / "tpu_shapes"
    return Workspace(TERRAFORM / "modules" / "tpu_shapes", folder, terraform_environment)


@pytest.fixture(scope="module")
def refusals(shapes: Workspace) -> str:
    """Return Terraform's errors for all wrong pools in one plan, which must name every problem."""
    pools = {name: pool for name, (pool, _) in REFUSED.items()}
    return shapes.refusal({"pools": pools, "zone": "us-central2-b", "gke_version": "1.32"})


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_pool_is_refused_with_what_to_write(refusals, name):
    assert f"Pool {name}: {REFUSED[name][1]}" in refusals


def test_wrong_pool_does_not_stand_in_the_way_of_destroy(shapes):
    shapes.plan({"pools": {"pool": {}}, "zone": "us-central2-b"})
    assert shapes.run("apply", "plan").returncode == 0
    wrong = {"pools": {"pool": {"tpu_type": "v4"}}, "zone": "us-nowhere1-a"}
    (shapes.folder / "terraform.tfvars.json").write_text(json.dumps(wrong))
    done = shapes.run("apply", "-destroy", "-auto-approve", "-no-color")
    assert done.returncode == 0, done.stderr
    assert shapes.run("output", "-json").stdout.strip() == "{}"


@pytest.mark.parametrize(
    ("changed", "sentences"),
    [
        (
            {"tpu_type": "v4-1024", "num_of_chips": 32, "services_ip_range": "192.168.64.0/24"},
            [
                "pods_ip_range 192.168.64.0/20 holds 4096 addresses, and the nodes asked for take 16896 of them. "
                "Write a /17 or wider one",
                "num_of_chips is 32, and the pools asked for have 2048 chips. Write that, or leave",
                "share addresses: pods_ip_range and services_ip_range. Give each",
            ],
        ),
        (
            {"zone": "us-central1-a", "num_tpu_pools": 0},
            ['Write region = "us-central1", or a zone of us-central2.'],
        ),
        ({"tpu_workload_policy": "ours"}, ["v4-32 takes no workload policy. Leave tpu_workload_policy out."]),
        ({"gke_version": "1.27.3-gke.100"}, ["GKE no longer creates clusters older than 1.32. Leave gke_version out"]),
    ],
    ids=["ranges-and-chips-at-once", "zone", "policy", "version"],
)
def test_wrong_environment_is_refused_while_planning(root, changed, sentences):
    refusal = root.refusal({**ASKED, **changed})
    assert [sentence for sentence in sentences if sentence not in refusal] == []


def test_plan_runs_no_node_as_the_default_account(environment_plan):
    pools = resources(environment_plan, "google_container_node_pool")
    cluster = resources(environment_plan, "google_container_cluster")
    assert len(pools) == 5
    for one in [*pools, *cluster]:
        config = one["node_config"][0]
        assert config["service_account"] == "gke-sa@tpu-project.iam.gserviceaccount.com"
        assert config["workload_metadata_config"] == [{"mode": "GKE_METADATA"}]


def test_plan_with_accounts_that_are_there_makes_none_and_grants_nothing_on_the_project(root):
    changes = root.plan({**ASKED, "create_service_accounts": False})["resource_changes"]
    assert not {"google_service_account", "google_project_iam_member"} & {one["type"] for one in changes}
    (bound,) = (one["change"]["after"] for one in changes if one["type"] == "google_service_account_iam_member")
    assert bound["service_account_id"] == (
        "projects/tpu-project/serviceAccounts/cloud-tpu-sa@tpu-project.iam.gserviceaccount.com"
    )


def test_plan_gives_a_role_that_is_asked_for_twice_once(root):
    asked = {**ASKED, "tpu_sa_roles": ["roles/storage.legacyBucketReader", "roles/storage.objectUser"]}
    grants = resources(root.plan(asked), "google_storage_bucket_iam_member")
    assert sorted(one["role"] for one in grants) == ["roles/storage.legacyBucketReader", "roles/storage.objectUser"]


def test_plan_gives_storage_on_the_bucket_alone(environment_plan):
    project_roles = {one["role"] for one in resources(environment_plan, "google_project_iam_member")}
    assert project_roles == {
        "roles/aiplatform.user",
        "roles/container.defaultNodeServiceAccount",
        "roles/datastore.user",
        "roles/logging.logWriter",
        "roles/monitoring.metricWriter",
        "roles/serviceusage.serviceUsageConsumer",
    }
    workloads = "serviceAccount:cloud-tpu-sa@tpu-project.iam.gserviceaccount.com"
    granted = {(one["role"], one["member"]) for one in resources(environment_plan, "google_storage_bucket_iam_member")}
    assert granted == {("roles/storage.legacyBucketReader", workloads), ("roles/storage.objectUser", workloads)}
    # Authoritative bindings would remove the role from all other members.
    assert not [one for one in environment_plan["resource_changes"] if one["type"].endswith("_iam_binding")]


def test_plan_pins_no_version_of_gke(environment_plan):
    (cluster,) = resources(environment_plan, "google_container_cluster")
    assert cluster["release_channel"] == [{"channel": "REGULAR"}]
    assert cluster.get("min_master_version") is None


def test_plan_protects_nothing_from_destroy(environment_plan):
    (cluster,) = resources(environment_plan, "google_container_cluster")
    (database,) = resources(environment_plan, "google_firestore_database")
    assert cluster["deletion_protection"] is False
    assert database["deletion_policy"] == "DELETE"
    assert not [path for path in TERRAFORM.rglob("*.tf") if "prevent_destroy" in path.read_text()]


def state_of(plan: dict) -> dict:
    """Return the state that applying this plan of pools leaves, as far as the next plan reads it."""
    found: dict[tuple[str, str], dict] = {}
    for one in plan["planned_values"]["root_module"]["resources"]:
        if (one["type"], one["name"]) == ("terraform_data", "autoscaling"):
            continue  # environments created before it exist; adding it replaces no pool
        values = {**one["values"], "id": one["address"]}
        provider = one["provider_name"]
        if one["type"] == "terraform_data":
            kinds = {name: "number" if isinstance(value, int) else "string" for name, value in values["input"].items()}
            held = {"value": values["input"], "type": ["object", kinds]}
            values |= {"input": held, "output": held, "triggers_replace": None}
        else:
            values |= {"location": "us-central2", "node_count": values["initial_node_count"], "version": "1.34"}
        resource = {"mode": "managed", "type": one["type"], "name": one["name"], "provider": f'provider["{provider}"]'}
        instance = {"index_key": one["index"], "schema_version": one["schema_version"], "attributes": values}
        found.setdefault((one["type"], one["name"]), {**resource, "instances": []})["instances"].append(instance)
    version = plan["terraform_version"]
    state = {"version": 4, "terraform_version": version, "serial": 1, "lineage": "tests", "outputs": {}}
    return {**state, "resources": list(found.values())}


@pytest.fixture(scope="module")
def pools(tmp_path_factory: pytest.TempPathFactory, terraform_environment: dict[str, str]) -> Workspace:
    folder = tmp_path_factory.mktemp("pools") / "tpu_pools"
    environment = {**terraform_environment, "GOOGLE_PROJECT": "tpu-project"}
    workspace = Workspace(TERRAFORM / "modules" / "tpu_pools", folder, environment)
    plan = workspace.plan(pool_variables({f"pool-{index}": {} for index in range(4)}))
    (workspace.folder / "terraform.tfstate").write_text(json.dumps(state_of(plan)))
    return workspace


def pool_variables(pools: dict[str, dict]) -> dict:
    v4_32 = {
        "generation": "v4",
        "machine_type": "ct4p-hightpu-4t",
        "topology": "2x2x4",
        "hosts": 4,
        "placement": "compact",
        "capacity": "on-demand",
    }
    return {
        "project_id": "tpu-project",
        "region": "us-central2",
        "zone": "us-central2-b",
        "cluster": "projects/tpu-project/locations/us-central2/clusters/tpu-cluster",
        "pools": {name: {**v4_32, **changed} for name, changed in pools.items()},
        "autoscaling": False,
        "max_run_duration": "604800s",
        "max_pods_per_node": 16,
        "disk_size": 100,
        "auto_upgrade": True,
        "multislice_group_name": "multi-slice-group",
        "node_service_account": "gke-sa@tpu-project.iam.gserviceaccount.com",
        "labels": {},
    }


@pytest.mark.parametrize(
    ("asked", "deleted", "created"),
    [
        ({"pool-0": {}, "pool-1": {}, "pool-2": {}, "pool-3": {}}, set(), set()),
        ({"pool-1": {}, "pool-2": {}, "pool-3": {}}, {"pool-0"}, set()),
        ({}, {"pool-0", "pool-1", "pool-2", "pool-3"}, set()),
        (
            {"pool-0": {}, "pool-1": {}, "pool-2": {"topology": "2x4x4", "hosts": 8}, "pool-3": {}},
            {"pool-2"},
            {"pool-2"},
        ),
        # The provider alone would change these two in place, which GKE refuses.
        ({"pool-0": {}, "pool-1": {}, "pool-2": {"topology": "1x4x4"}, "pool-3": {}}, {"pool-2"}, {"pool-2"}),
        (
            {"pool-0": {}, "pool-1": {}, "pool-2": {}, "pool-3": {"machine_type": "ct5p-hightpu-4t"}},
            {"pool-3"},
            {"pool-3"},
        ),
        ({"pool-0": {}, "pool-1": {"capacity": "spot"}, "pool-2": {}, "pool-3": {}}, {"pool-1"}, {"pool-1"}),
        ({"pool-0": {}, "pool-1": {}, "pool-2": {}, "pool-3": {}, "pool-4": {}}, set(), {"pool-4"}),
    ],
    ids=["same", "without-0", "none", "larger", "topology", "machine-type", "spot", "one-more"],
)
def test_change_of_pools_touches_no_other_pool(pools, asked, deleted, created):
    plan = pools.plan(pool_variables(asked))
    changes = [one for one in plan["resource_changes"] if one["type"] == "google_container_node_pool"]
    assert {one["index"] for one in changes if "delete" in one["change"]["actions"]} == deleted
    assert {one["index"] for one in changes if "create" in one["change"]["actions"]} == created
