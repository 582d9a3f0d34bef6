"""Start options of control plane components where GKE's defaults differ from Kubernetes' own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tpubox.box import control_plane, folder
from tpubox.box.binaries import Binaries


def test_api_server_lets_pods_that_ask_for_chips_tolerate_the_taint_of_their_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("TPUKIT_HOME", str(tmp_path))
    with folder.locked("box"):
        place = folder.prepare("box")
    argv = control_plane.api_server(place, Binaries(tmp_path)).argv
    assert "--enable-admission-plugins=ExtendedResourceToleration" in argv
