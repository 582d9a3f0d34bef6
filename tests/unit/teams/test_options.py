"""Command lines about teams: all errors reported at once, or the fields that change and those that stay."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpubox.google.iam import roles
from tpukit.cluster import team_account, team_members
from tpukit.core.errors import Invalid
from tpukit.teams import team
from tpukit.teams.team import Team, request

ADA = "user:ada@example.com"
EMAIL = "runner@my-project-1.iam.gserviceaccount.com"


def test_options_make_a_team():
    wanted = request("vision", quota=["v4-16=2", "v5litepod-8=1"], borrow=["v4-16=1"], members=[ADA, ADA], email=EMAIL)
    assert wanted.applied(None) == Team(
        "vision", {"v4-2x2x2": 2, "v5e-2x4": 1}, {"v4-2x2x2": 1}, (ADA,), EMAIL, made_with_cluster=False
    )


def test_options_not_named_stay_as_they_are():
    before = Team("vision", {"v4-2x2x2": 2}, {}, (ADA,), EMAIL)
    assert request("vision").applied(before) == before
    assert request("vision", borrow=["unlimited"]).applied(before).borrow is None
    assert request("vision", members=["none"]).applied(before).members == ()
    assert request("vision", email="none").applied(before).email == ""
    assert request("vision", borrow=["v4-16=1"]).applied(before).quota == {"v4-2x2x2": 2}


def test_quota_names_the_way_only_where_there_are_several():
    spot, reserved = "v4-2x2x2-spot", "v4-2x2x2-reservation-ours"
    assert request("vision", quota=["v4-16=2"]).applied(None, [spot]).quota == {spot: 2}
    assert request("vision", quota=["v4-16:reservation=2"]).applied(None, [spot, reserved]).quota == {reserved: 2}
    every = ["v4-2x2x2", spot, reserved, "v5e-2x4", "cpu"]
    both = request("vision", quota=["v4-16:on-demand=2", "v4-16:spot=1", "v5e-8=1"]).applied(None, every)
    assert both.quota == {"v4-2x2x2": 2, spot: 1, "v5e-2x4": 1}
    with pytest.raises(Invalid) as error:
        request("vision", quota=["v4-16=2"], borrow=["v4-16:reservation:ours=1"]).applied(None, every)
    hint = "write --quota v4-16:on-demand=2 or --quota v4-16:spot=2 or --quota v4-16:reservation:ours=2"
    assert [(one.what, one.hint) for one in error.value.problems] == [("there are several kinds of v4-16", hint)]
    with pytest.raises(Invalid, match="named twice"):
        request("vision", quota=["v4-16=2", "v4-16:spot=1"]).applied(None, [spot])
    with pytest.raises(Invalid, match="there is no capacity 'cheap'"):
        request("vision", quota=["v4-16:cheap=1"])


def test_quota_given_back_takes_its_limit_along():
    given_back = request("vision", quota=["none"]).applied(Team("vision", {"v4-2x2x2": 2}, {}))
    assert (given_back.quota, given_back.borrow, given_back.queue) == ({}, None, "tpu")


def test_all_problems_are_said_at_once():
    with pytest.raises(Invalid) as error:
        request(
            "Big Team",
            quota=["v4-17=1", "v2-8=1", "v4-16", "v4-32=0", "v4-8=1", "V4-8=2"],
            borrow=["x=1"],
            members=["bob", "group:system:masters", "account:Not/One", "user:a b"],
            email="nobody",
        )
    assert [str(problem).partition("\n")[0] for problem in error.value.problems] == [
        "NAME: 'Big Team' is not allowed",
        "--quota: there is no TPU named 'v4-17'",
        "--quota: GKE has no v2-8",
        "--quota: 'v4-16' is not a number of slices",
        "--quota: 'v4-32=0' is not a number of slices",
        "--quota: V4-8 is named twice",
        "--borrow: there is no TPU named 'x'",
        "--member: 'bob' is not a member",
        "--member: 'system:masters' belongs to Kubernetes",
        "--member: 'Not/One' is not the name of an account",
        "--member: 'user:a b' is not a member",
        "--service-account: 'nobody' is not a Google service account",
    ]
    assert all(problem.hint for problem in error.value.problems)


@pytest.mark.parametrize(
    "words", [{"quota": ["none", "v4-8=1"]}, {"borrow": ["unlimited", "v4-8=1"]}, {"members": ["none", ADA]}]
)
def test_none_and_something_exclude_each_other(words):
    with pytest.raises(Invalid, match="exclude each other"):
        request("vision", **words)


@pytest.mark.parametrize("name", ["tpu", "kube-system", "-a", "a" * 64, "", "ä"])
def test_name_that_is_no_namespace_of_ours_is_refused(name):
    with pytest.raises(Invalid, match="NAME"):
        request(name)


@given(st.text(max_size=80), st.lists(st.text(max_size=20), max_size=3), st.lists(st.text(max_size=30), max_size=3))
def test_whatever_is_typed_becomes_a_team_or_a_list_of_problems(name, quota, members):
    try:
        made = request(name, quota=quota, members=members).applied(None)
    except Invalid as error:
        assert error.problems
    else:
        assert made.name == name
        assert all(team.subject(member, name)[1] for member in made.members)


@pytest.mark.parametrize("member", [ADA, "group:all@example.com", "account:robot"])
def test_member_reads_back_as_it_was_written(member):
    kind, name, namespace = team.subject(member, "vision")
    assert team.member(kind, name) == member
    assert (namespace == "vision") == member.startswith("account:")


@pytest.mark.parametrize(
    ("email", "project"),
    [(EMAIL, "my-project-1"), ("runner@my-project-1.example.com.iam.gserviceaccount.com", "example.com:my-project-1")],
)
def test_project_of_a_google_account_is_in_its_address(email, project):
    assert team.project(email) == project


def test_request_for_networks_takes_ranges_and_google_and_unlimited_lifts_them():
    before = team.Team("vision", egress=("10.0.0.0/8",))
    made = request("vision", egress=["203.0.113.0/24", "google", "203.0.113.0/24"]).applied(before)
    assert made.egress == ("203.0.113.0/24", *team.GOOGLE_APIS)
    assert request("vision", egress=["unlimited"]).applied(before).egress == ()
    assert request("vision").applied(before).egress == ("10.0.0.0/8",)


@pytest.mark.parametrize("words", [["everywhere"], ["10.0.0.1/8"], ["unlimited", "10.0.0.0/8"]])
def test_request_for_networks_that_are_none_is_refused(words):
    with pytest.raises(Invalid) as raised:
        request("vision", egress=words)
    assert "--egress" in str(raised.value)


def test_root_is_allowed_only_where_somebody_asks_for_it():
    assert request("vision").applied(None).allow_root is False
    allowed = request("vision", allow_root=True).applied(None)
    assert allowed.allow_root is True
    assert request("vision", members=[ADA]).applied(allowed).allow_root is True
    assert request("vision", allow_root=False).applied(allowed).allow_root is False


@given(st.from_regex(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True))
def test_account_of_a_team_has_a_name_that_google_takes(name):
    assert re.fullmatch(r"[a-z][-a-z0-9]{4,28}[a-z0-9]", team_account.account_of(name))


def test_accounts_of_teams_with_long_names_that_begin_alike_differ():
    names = [f"research-group-of-the-third-floor-{number}" for number in range(50)]
    assert len({team_account.account_of(name) for name in names}) == 50


def test_own_account_gets_its_folder_of_the_bucket_and_elsewhere_no_role_that_reads():
    lines = team_account.lines(team_account.steps("vision", "my-project-1", "gs://runs"))
    granting = [line for line in lines if "binding" in line]
    email = "team-vision@my-project-1.iam.gserviceaccount.com"
    assert granting == [
        "gcloud storage managed-folders add-iam-policy-binding gs://runs/teams/vision/ "
        f"--member=serviceAccount:{email} --role=roles/storage.objectUser --format=none --quiet",
        "gcloud storage buckets add-iam-policy-binding gs://runs "
        f"--member=serviceAccount:{email} --role=roles/storage.bucketViewer --format=none --quiet",
    ]


def test_member_gets_the_right_to_connect_logs_and_the_folder_and_no_role_inside_clusters():
    members = ("user:ada@example.com", "account:robot")
    lines = [str(one) for one in team_members.commands("vision", members, "my-project-1", "gs://runs")]
    project = "gcloud projects add-iam-policy-binding my-project-1 --member=user:ada@example.com"
    assert lines == [
        f"{project} --role=roles/container.clusterViewer --condition=None --format=none --quiet",
        f"{project} --role=roles/logging.viewer --condition=None --format=none --quiet",
        "gcloud storage managed-folders add-iam-policy-binding gs://runs/teams/vision/ --member=user:ada@example.com "
        "--role=roles/storage.objectUser --format=none --quiet",
    ]


def test_role_that_members_get_has_the_permission_to_connect():
    assert "container.clusters.connect" in roles.ROLES[team_members.CONNECT]


def test_member_of_a_team_without_a_known_folder_gets_no_role_on_the_bucket():
    lines = team_members.commands("vision", ("group:all@example.com",), "my-project-1", "")
    assert not [one for one in lines if "storage" in str(one)]
