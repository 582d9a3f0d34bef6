"""What a command line says of a team: all that is wrong with it at once, or what changes and what stays."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpukit.errors import Invalid
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
