"""Invalid job files: every message in full."""

from __future__ import annotations

import pytest

from tpukit.core.errors import Invalid
from tpukit.jobs.spec import JobSpec, load, loads

RIGHT = {"name": "name: hello", "tpu": "tpu: v4-8", "command": "command: [python, hello.py]"}


def _message(text: str, *sets: str) -> str:
    with pytest.raises(Invalid) as error:
        loads(text, sets=sets)
    assert error.value.exit_code == 2
    assert all(problem.where and problem.what and problem.hint for problem in error.value.problems)
    return str(error.value)


BAD_LINES = [
    # names
    ("name: Pre_train", "name: 'Pre_train' is not allowed", "write pre-train"),
    ("name: 7up", "name: '7up' is not allowed", "use at most 32 of a-z, 0-9 and -, a letter first and no - last"),
    (
        f"name: {'a' * 33}",
        f"name: '{'a' * 33}' is longer than 32 characters",
        "use at most 32 of a-z, 0-9 and -, a letter first and no - last",
    ),
    ("name: 7", "name: 7 is not text", 'put it in quotes: name: "7"'),
    ("name: [a]", "name: a list is not text", "write name: pretrain"),
    ("name:", "name is missing", "add name: pretrain"),
    # TPU slices
    ("tpu: v4-33", "tpu: there is no TPU named 'v4-33'", "write v4-32 or v4-64; `tpu catalogue` lists them all"),
    ("tpu: v4-4", "tpu: there is no TPU named 'v4-4'", "write v4-8 for 4 chips, as these names count TensorCores"),
    ("tpu: 4", "tpu: 4 is not the name of a TPU", "write the name of one: v4-32"),
    (
        "tpu: {generation: v4, topology: 3x3x3}",
        "tpu: there is no v4 slice of '3x3x3'",
        "write 2x4x4 (32 chips) or 2x2x4 (16 chips); `tpu catalogue v4` lists them all",
    ),
    (
        "tpu: {generation: v4}",
        "tpu: name a slice by its type, or by its generation and topology",
        "write tpu: v4-32, or tpu: {generation: v4, topology: 2x2x4}",
    ),
    (
        "tpu: {type: v4-8, topology: 2x2x1}",
        "tpu: name a slice by its type, or by its generation and topology",
        "write tpu: v4-32, or tpu: {generation: v4, topology: 2x2x4}",
    ),
    (
        "tpu: {type: v5e-8, machine_type: ct5lp-hightpu-1t}",
        "tpu: v5litepod-8 has no hosts of type 'ct5lp-hightpu-1t'",
        "write ct5lp-hightpu-8t or ct5lp-hightpu-4t, or leave it out",
    ),
    ("tpu: {typ: v4-8}", "there is no key 'typ' in tpu", "write type"),
    ("slices: 10000", "slices: 10000 is too many", "write 256 or less"),
    ("slices: 0", "slices: 0 is too few", "write 1 or more"),
    ("slices: two", "slices: 'two' is not a whole number", "write slices: 2"),
    ("slices: 2.0", "slices: 2.0 is not a whole number", "write slices: 2"),
    ("slices: true", "slices: true is not a whole number", "write slices: 2"),
    # commands
    (
        "command: python train.py --name 'a b'",
        "command: \"python train.py --name 'a b'\" is not a list",
        'write command: [python, train.py, --name, "a b"]',
    ),
    ("command: []", "command: the command is empty", "write command: [python, train.py]"),
    ('command: [""]', "command: the command is empty", "write command: [python, train.py]"),
    ("command: [python, 500]", "command[1]: 500 is not text", 'put it in quotes: "500"'),
    ("command: [python, ~]", "command[1] has no value", 'write "" for an empty text'),
    ('command: ["a\\0b"]', "command[0]: the text has a NUL character", "remove it: no program can receive one"),
    # images, teams, priorities
    (
        "image: Upper/Case",
        "image: 'Upper/Case' is not allowed",
        "write HOST/PATH:TAG or HOST/PATH@sha256:DIGEST, the path in lower case",
    ),
    (
        "image: img@sha256:12",
        "image: 'img@sha256:12' is not allowed",
        "write HOST/PATH:TAG or HOST/PATH@sha256:DIGEST, the path in lower case",
    ),
    ("team: Research Lab", "team: 'Research Lab' is not allowed", "write research-lab"),
    (
        "team: kube-system",
        "team: 'kube-system' is not allowed",
        "names that start with kube- belong to Kubernetes: use another",
    ),
    (
        "priority: '!'",
        "priority: '!' is not allowed",
        "use at most 63 of a-z, 0-9 and -, with no - first or last",
    ),
    # config and env
    ("config: [lr]", "config: a list is not a mapping", "write config: {lr: 0.01}"),
    (
        "config: {'a b': 1}",
        "config.a b: this cannot be the name of a setting",
        "use letters, digits, - and _, with no digit first",
    ),
    ("config: {a: [1, .inf]}", "config.a[1]: inf is not a finite number", "write a number, or leave it out"),
    ("config: {a: 1e999}", "config.a: inf is not a finite number", "write a number, or leave it out"),
    (
        "config: {a: 9223372036854775808}",
        "config.a: 9223372036854775808 does not fit into 64 bits",
        "write a smaller number, or put it in quotes",
    ),
    ('config: {a: "\\0"}', "config.a: the text has a NUL character", "remove it: no program can receive one"),
    (
        "config: {lr: 1, training: {learning_rate: 2}}",
        "config.training.learning_rate is given twice",
        "keep one of them; the other is at job.yaml:1",
    ),
    ("config: {a: 1, a.b: 2}", "config.a is given twice", "keep one of them; the other is at job.yaml:1"),
    ("env: {STEPS: 5}", "env.STEPS: 5 is not text", 'put it in quotes: STEPS: "5"'),
    ("env: {DEBUG: true}", "env.DEBUG: true is not text", 'put it in quotes: DEBUG: "true"'),
    ("env: {A: }", "env.A has no value", 'write A: "" for an empty text'),
    ("env: {A-B: c}", "env.A-B: 'A-B' is not allowed", "use letters, digits and _, with no digit first"),
    *(
        (
            f"env: {{{name}: x}}",
            f"env.{name}: this name is reserved",
            "leave it out; tpukit sets this variable for each host",
        )
        for name in ("TPUKIT_JOB", "TPU_WORKER_ID", "MEGASCALE_PORT", "JAX_COORDINATOR_ADDRESS", "TPU_TOPOLOGY")
    ),
    # destinations
    ("workdir: s3://b/x", "workdir: 's3://b/x' is not allowed", "write gs://BUCKET/PATH, or a folder on this machine"),
    (
        "workdir: gs://b-1/../x",
        "workdir: 'gs://b-1/../x' is not allowed",
        "write gs://BUCKET/PATH, or a folder on this machine",
    ),
    ("code: gs://b/x", "code: 'gs://b/x' is not allowed", "write the path of a folder on this machine"),
    (
        "mounts: [{bucket: gs://b, path: /data}]",
        "mounts[0].bucket: 'gs://b' is not allowed",
        "write the name of the bucket alone, without gs://",
    ),
    (
        "mounts: [{bucket: abc, path: ../data}]",
        "mounts[0].path: '../data' is not allowed",
        "write an absolute path of letters, digits, dots, dashes and underscores, such as /data",
    ),
    (
        "mounts: [{bucket: abc, path: /a/../etc}]",
        "mounts[0].path: '/a/../etc' is not allowed",
        "write an absolute path of letters, digits, dots, dashes and underscores, such as /data",
    ),
    (
        "mounts: [{bucket: abc, path: /etc/x}]",
        "mounts[0].path: /etc/x belongs to the system",
        "mount it elsewhere, such as at /data",
    ),
    (
        "mounts: [{bucket: abc, path: /a}, {bucket: abd, path: /a/b}]",
        "mounts[1].path: /a/b lies in another mount",
        "give each mount a path of its own",
    ),
    ("mounts: [{bucket: abc}]", "mounts[0].path is missing", "add path: /data"),
    ("mounts: [abc]", "mounts[0]: 'abc' is not a mapping", "write {bucket: my-data, path: /data}"),
    # choices
    ("tensorboard: yes", "tensorboard: 'yes' is not true or false", "write tensorboard: true"),
    (
        "capacity: reserved",
        "capacity: there is no 'reserved'",
        "write on-demand, spot, flex-start or {reservation: NAME}",
    ),
    (
        "capacity: {reservation: A B}",
        "capacity: 'A B' is not allowed",
        "write NAME, or projects/PROJECT/reservations/NAME",
    ),
    (
        "capacity: [spot]",
        "capacity: a list is not a capacity",
        "write on-demand, spot, flex-start or {reservation: NAME}",
    ),
    ("rule: retry", "rule: there is no 'retry'", "write pass, resume, rerun, reapply or pre"),
    ("rule: false", "rule: there is no false", "write pass, resume, rerun, reapply or pre"),
    # bounds
    ("max: {runtime: 3600}", "max.runtime: 3600 is not a duration", "write 3600s for seconds"),
    (
        "max: {runtime: soon}",
        "max.runtime: 'soon' is not a duration",
        "write a whole number and one of s, m, h, d: 90s or 12h",
    ),
    ("max: {runtime: 0s}", "max.runtime: 0s is out of bounds", "write a duration between 1s and 365d"),
    ("max: {unattended: 366d}", "max.unattended: 366d is out of bounds", "write a duration between 0s and 365d"),
    ("max: {stall: 0s}", "max.stall: 0s is out of bounds", "write a duration between 1s and 365d"),
    ("max: {grace: 61m}", "max.grace: 61m is longer than GKE allows", "write 60m or less"),
    ("max: {restarts: 101}", "max.restarts: 101 is too many", "write 100 or less"),
    ("max: {restarts: -1}", "max.restarts: -1 is too few", "write 0 or more"),
    ("max: {runtme: 1h}", "there is no key 'runtme' in max", "write runtime"),
    ("max: 12h", "max: '12h' is not a mapping", "write max: {runtime: 12h, restarts: 20}"),
    (
        "tags: [a b]",
        "tags[0]: 'a b' is not allowed",
        "use at most 63 letters, digits, dashes, dots and underscores, with a letter or digit first and last",
    ),
    ("tags: sweep-3", "tags: 'sweep-3' is not a list", "write tags: [sweep-3]"),
    # keys
    ("slcies: 2", "there is no key 'slcies'", "write slices"),
    ("lr: 0.1", "there is no key 'lr'", "put it under config: write config: {lr: …}"),
    (
        "<<: {a: b}",
        "there is no key '<<'",
        "write " + ", ".join(list(JobSpec.fields)[:-1]) + " or " + list(JobSpec.fields)[-1],
    ),
]


@pytest.mark.parametrize(("line", "what", "hint"), BAD_LINES, ids=[line[:50] for line, _, _ in BAD_LINES])
def test_loads_wrong_line_is_one_problem_with_its_place(line, what, hint):
    lines = [line, *(right for key, right in RIGHT.items() if not line.startswith(f"{key}:"))]
    assert _message("\n".join(lines)) == f"job.yaml:1: {what}\n  {hint}"


def test_loads_many_problems_come_at_once_from_the_top_down():
    text = "nme: hello\ntpu: v4-9\n\nslices: 0\ncommand:\n- python\n- 5\nmax:\n  restarts: no\nslices: 1\n"
    assert _message(text, "rule=x", "max.stall=1") == (
        "job.yaml:1: name is missing\n"
        "  add name: pretrain\n"
        "job.yaml:1: there is no key 'nme'\n"
        "  write name\n"
        "job.yaml:2: tpu: there is no TPU named 'v4-9'\n"
        "  write v4-8 or v4-16; `tpu catalogue` lists them all\n"
        "job.yaml:7: command[1]: 5 is not text\n"
        '  put it in quotes: "5"\n'
        "job.yaml:9: max.restarts: 'no' is not a whole number\n"
        "  write restarts: 20\n"
        "job.yaml:10: the key 'slices' occurs twice\n"
        "  keep one of them; the other is at job.yaml:4\n"
        "--set rule: there is no 'x'\n"
        "  write pass, resume, rerun, reapply or pre\n"
        "--set max.stall: 1 is not a duration\n"
        "  write 1s for seconds"
    )


def test_loads_hopeless_file_names_a_hundred_problems_and_counts_the_rest():
    with pytest.raises(Invalid) as error:
        loads("\n".join([*RIGHT.values(), *(f"key{number}: 1" for number in range(1000))]))
    assert len(error.value.problems) == 101
    assert error.value.problems[99].where == "job.yaml:103"
    assert str(error.value.problems[100]) == "and 900 more problems"


def test_loads_endlessly_dotted_setting_is_refused():
    text = "\n".join([*RIGHT.values(), "config:", f"  ? {'a.' * 100_000}b", "  : 1"])
    assert _message(text) == "job.yaml:5: config has a name of more than 32 parts\n  use fewer levels"


@pytest.mark.parametrize("tpu", ["v2-8", "v3-32"])
def test_loads_generation_without_multislice_is_refused_for_two_slices(tpu):
    text = f"name: a\ntpu: {tpu}\nslices: 2\ncommand: [x]\n"
    generation = tpu[:2]
    assert _message(text) == (
        f"job.yaml:3: slices: {generation} slices cannot train together\n  write slices: 1, or another tpu: v4-32"
    )
    assert loads(text, sets=["slices=1"]).slice.generation == generation


def test_loads_flex_start_longer_than_a_week_is_refused():
    text = "name: a\ntpu: v5e-8\ncommand: [x]\ncapacity: flex-start\nmax:\n  runtime: 8d\n"
    assert _message(text) == "job.yaml:6: max.runtime: 8d is longer than flex-start runs\n  write 7d or less"
    assert loads(text, sets=["max.runtime=7d"]).max.runtime == 7 * 86400


def test_loads_argument_too_long_for_linux_is_refused():
    text = f"name: a\ntpu: v4-8\ncommand: [x, {'y' * 131_072}]\n"
    assert "command[1]: the argument is longer than 128 KiB" in _message(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "job.yaml:1: the job file is empty\n  write at least name, tpu and command"),
        ("# nothing\n", "job.yaml:1: the job file is empty\n  write at least name, tpu and command"),
        (
            "- a\n- b\n",
            "job.yaml:1: a job file has lines of the form key: value\n  start with the line name: pretrain",
        ),
        (
            "just words",
            "job.yaml:1: a job file has lines of the form key: value\n  start with the line name: pretrain",
        ),
    ],
)
def test_loads_text_that_is_no_mapping_says_how_to_start(text, message):
    assert _message(text) == message


def test_load_missing_file_offers_its_neighbour(tmp_path):
    (tmp_path / "job.yaml").write_text("")
    with pytest.raises(Invalid) as error:
        load(tmp_path / "jbo.yaml")
    assert str(error.value) == f"{tmp_path}/jbo.yaml: the file does not exist\n  write {tmp_path}/job.yaml"


def test_load_missing_folder_says_so(tmp_path):
    with pytest.raises(Invalid) as error:
        load(tmp_path / "none" / "job.yaml")
    assert str(error.value) == (
        f"{tmp_path}/none/job.yaml: the file does not exist\n  the folder {tmp_path}/none does not exist either"
    )


def test_load_folder_offers_the_job_file_in_it(tmp_path):
    (tmp_path / "job.yaml").write_text("")
    with pytest.raises(Invalid) as error:
        load(tmp_path)
    assert str(error.value) == f"{tmp_path}: this is a folder, not a file\n  write {tmp_path}/job.yaml"


def test_load_file_that_is_not_utf8_names_the_line(tmp_path):
    file = tmp_path / "job.yaml"
    file.write_bytes(b"name: a\ntpu: \xff\n")
    with pytest.raises(Invalid) as error:
        load(file)
    assert str(error.value) == f"{file}:2: this is not UTF-8 text\n  save the file as UTF-8"


@pytest.mark.parametrize("path", ["/dev/zero", "big.yaml"])
def test_load_file_over_a_mebibyte_is_refused(tmp_path, path):
    (tmp_path / "big.yaml").write_bytes(b"#" * (1 << 20) + b"\n")
    with pytest.raises(Invalid, match="the file is larger than 1 MiB"):
        load(tmp_path / path)


def test_load_path_that_no_file_can_have_is_invalid():
    with pytest.raises(Invalid, match="the file cannot be read"):
        load("a\0b")
    with pytest.raises(Invalid, match="the file cannot be read: File name too long"):
        load("a" * 300)


def test_file_that_is_missing_is_not_answered_with_another_kind_of_file(tmp_path):
    (tmp_path / "cluster.yaml").write_text("project_id: my-project-1\n")
    with pytest.raises(Invalid) as error:
        load(tmp_path / "job.yaml")
    assert str(error.value).endswith("the file does not exist\n  write the path of a job file")
    (tmp_path / "train.yaml").write_text("name: train\ntpu: v4-8\ncommand: [x]\n")
    with pytest.raises(Invalid, match=r"write .*train\.yaml"):
        load(tmp_path / "job.yaml")
