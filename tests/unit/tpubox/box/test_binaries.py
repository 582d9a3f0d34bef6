"""The build of the sandbox's programs, up to the compiler call."""

import os
import shutil
import stat
from pathlib import Path

import pytest

from tpubox.box import binaries
from tpukit.core import resources
from tpukit.core.errors import NotFound, TpukitError


@pytest.fixture
def modules(tmp_path, monkeypatch):
    """Return a copy of the pinned modules that a test may change, with an empty cache."""
    copied = tmp_path / "modules"
    shutil.copytree(resources.folder("sandbox"), copied)
    monkeypatch.setattr(resources, "folder", lambda name: copied)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return copied


def tool(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    file = folder / name
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)


def cached(tmp_path):
    return sorted((tmp_path / "cache" / "tpukit" / "sandbox").glob("*/bin/*"))


def test_versions_are_those_of_the_pins(modules):
    pins = (modules / "kube" / "go.mod").read_text()
    assert f"k8s.io/kubernetes {binaries.versions()['kubernetes']}\n" in pins
    assert set(binaries.versions()) == {"kubernetes", "etcd", "jobset", "kueue", "kwok"}


@pytest.mark.parametrize("file", ["kube/go.mod", "kube/main.go", "kwok/go.sum"])
def test_changed_pin_is_another_build(modules, file):
    before = binaries._digest()
    (modules / file).write_text((modules / file).read_text() + "\n// changed\n")
    assert binaries._digest() != before


def test_go_that_is_missing_is_a_sentence(modules, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotFound, match="go is not on PATH") as raised:
        binaries.ensure()
    assert "install Go" in raised.value.hint


def test_go_that_is_too_old_is_a_sentence_with_its_own_words(modules, tmp_path, monkeypatch):
    tool(tmp_path / "tools", "go", "echo 'go.mod requires go >= 1.26.0 (running go 1.20)' >&2; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path / 'tools'}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(NotFound, match=r"requires go >= 1\.26\.0"):
        binaries.ensure()


def test_build_that_fails_leaves_nothing_and_says_what_go_said(modules, tmp_path, monkeypatch):
    tool(tmp_path / "tools", "go", '[ "$1" = env ] && exit 0; echo "no such module" >&2; exit 3')
    monkeypatch.setenv("PATH", f"{tmp_path / 'tools'}{os.pathsep}{os.environ['PATH']}")
    told = []
    with pytest.raises(TpukitError, match="for kube ended with 3:\n  no such module"):
        binaries.ensure(told.append)
    assert told[0].startswith(f"building kube {binaries.versions()['kubernetes']} (1 of 4, once)")
    assert cached(tmp_path) == []


def test_build_is_made_once_with_manifests_and_all_names_of_the_control_plane(modules, tmp_path, monkeypatch):
    # A compiler whose every product is a kubectl that prints one manifest.
    script = f"""
echo "$@" >> {tmp_path}/calls
case "$1" in
build) while [ "$1" != -o ]; do shift; done; printf '#!/bin/sh\\necho "kind: Made"' > "$2"; chmod +x "$2" ;;
mod) echo '{{"Dir": "/module"}}' ;;
esac"""
    tool(tmp_path / "tools", "go", script)
    monkeypatch.setenv("PATH", f"{tmp_path / 'tools'}{os.pathsep}{os.environ['PATH']}")
    first = binaries.ensure()
    calls = (tmp_path / "calls").read_text()
    assert binaries.ensure() == first
    assert (tmp_path / "calls").read_text() == calls, "a warm start asks Go nothing"
    for program in (*binaries.KUBE_PROGRAMS, "kube", "jobset", "kueue", "kwok"):
        assert os.access(first.program(program), os.X_OK), program
    assert first.manifests("jobset")[0]["kind"] == "Made"
    assert "-X k8s.io/component-base/version.gitMinor=36" in calls
