"""Render a job on every slice that GKE offers, and print their number."""

from __future__ import annotations

import json

from tpukit import catalogue
from tpukit.jobs import plan, render, spec

JOB = """\
name: bench
tpu: {tpu}
command: [python, train.py]
image: us-docker.pkg.dev/project/repository/train:1
workdir: gs://bucket/runs/bench
"""


def main() -> None:
    shapes = [shape for shape in catalogue.slices() if shape.machine_type]
    for shape in shapes:
        tpu = json.dumps({"type": shape.name, "machine_type": shape.machine_type})
        text = render.text(plan.make(spec.loads(JOB.format(tpu=tpu)), spec.Settings(), "gke"))
        assert shape.topology in text
    print(f"{len(shapes)} shapes")


if __name__ == "__main__":
    main()
