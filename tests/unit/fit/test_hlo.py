"""Figures from the text of compiled programs, in the syntax of libtpu 0.0.50."""

from __future__ import annotations

import pytest

from tpukit.fit.worker import hlo

ENTRY = "ENTRY %main.1 (p: f32[8]) -> f32[8] {"


def program(*lines: str, others: str = "") -> str:
    return "\n".join(["HloModule jit_step", "", others, ENTRY, *(f"  {line}" for line in lines), "}", ""])


def test_cycles_in_a_loop_count_as_often_as_it_runs() -> None:
    body = (
        "%body.1 (p: f32[8]) -> f32[8] {\n"
        '  %a.1 = f32[8]{0} fusion(%p), calls=%f.1, backend_config={"estimated_cycles":"100"}\n'
        "}\n%cond.1 (p: f32[8]) -> pred[] {\n  ROOT %lt = pred[] compare(%i, %n), direction=GT\n}\n"
    )
    loop = (
        "%w = f32[8]{0} while(%t), condition=%cond.1, body=%body.1, "
        'backend_config={"known_trip_count":{"n":"24"},"estimated_cycles":"7"}'
    )
    found = hlo.read(program(loop, others=body), [0])
    assert found["cycles"] == 24 * 100 + 7
    assert found["loops"] == pytest.approx(2407 / 107)


def test_loop_without_a_count_takes_the_bound_of_its_condition() -> None:
    others = (
        '%body.1 (p: f32[8]) -> f32[8] {\n  %a.1 = f32[8]{0} add(%p, %p), backend_config={"estimated_cycles":"10"}\n}\n'
        "%cond.1 (p: f32[8]) -> pred[] {\n  %c = s32[]{:T(128)} constant(6), metadata={}\n"
        "  ROOT %lt = pred[]{:T(512)} compare(%i, %c), direction=LT\n}\n"
    )
    found = hlo.read(program("%w = f32[8]{0} while(%t), condition=%cond.1, body=%body.1", others=others), [0])
    assert found["cycles"] == 60


def test_cycles_that_the_compiler_does_not_know_are_left_out() -> None:
    line = '%a = f32[8]{0} add(%p, %p), backend_config={"estimated_cycles":"9223372036854775807"}'
    found = hlo.read(program(line), [0])
    assert (found["cycles"], found["unknown"]) == (0, 1)


@pytest.mark.parametrize(
    ("line", "leaving"),
    [
        ("%g = f32[1024]{0:T(128)} all-gather(%p), channel_id=1, replica_groups={{0,1,2,3}}, dimensions={0}", 3072),
        ("%g = f32[256]{0} reduce-scatter(%p), channel_id=1, replica_groups={{0,1,2,3}}, dimensions={0}", 3072),
        ("%g = f32[1024]{0} all-reduce(%p), channel_id=1, replica_groups={{0,1,2,3}}, to_apply=%add", 6144),
        ("%g = bf16[1024]{0} all-reduce(%p), channel_id=1, replica_groups=[1,4]<=[4], to_apply=%add", 3072),
        ("%g = f32[1024]{0} collective-permute(%p), channel_id=1, source_target_pairs={{0,1}}", 4096),
        ("%g = (f32[2]{0}, f32[1024]{0}) all-gather-start(%p), replica_groups={{0,1,2,3}}, dimensions={0}", 3072),
        ("%g = f32[1024]{0} all-gather-done(%s)", 0),
        ("%g = f32[1024]{0} all-reduce(%p), replica_groups={{0},{1}}, to_apply=%add", 0),
    ],
)
def test_collective_counts_the_bytes_that_leave_a_chip_in_a_ring(line: str, leaving: int) -> None:
    found = hlo.read(program(line), [0, 0, 0, 0])
    assert (found["inside"], found["between"]) == (leaving, 0)


@pytest.mark.parametrize(
    ("groups", "between"),
    [
        ("{{0,1},{2,3}}", False),
        ("{{0,2},{1,3}}", True),
        ("[2,2]<=[4]", False),
        ("[2,2]<=[2,2]T(1,0)", True),
        ("{}", True),
    ],
)
def test_collective_whose_group_spans_slices_is_between_them(groups: str, between: bool) -> None:
    line = f"%g = f32[8]{{0}} all-reduce(%p), channel_id=1, replica_groups={groups}, to_apply=%add"
    found = hlo.read(program(line), [0, 0, 1, 1])
    assert bool(found["between"]) is between
    assert bool(found["inside"]) is not between


def test_send_to_the_megascale_runtime_is_traffic_between_slices() -> None:
    line = (
        "%send.1 = (f32[4,8,128]{2,1,0:T(8,128)}, u32[]{:S(2)}, token[]) send(%x, %t), channel_id=4, "
        'frontend_attributes={_xla_host_transfer_handler_name="xla_megascale_runtime",'
        '_xla_host_transfer_rendezvous="all-reduce.3_0",_xla_megascale_transfer_type="ALL_REDUCE"}'
    )
    found = hlo.read(program(line), [0, 1])
    assert found["between"] == 4 * 8 * 128 * 4
    assert found["transfers"][0]["kind"] == "all-reduce"


def test_collective_that_is_fused_into_several_operations_counts_once() -> None:
    piece = (
        "%all-gather.{0} = bf16[1024]{{0}} all-gather(%p), channel_id=8, replica_groups={{{{0,1}}}}, "
        'dimensions={{0}}, frontend_attributes={{chain_id="3"}}'
    )
    found = hlo.read(program(*(piece.format(number) for number in range(3))), [0, 0])
    assert found["inside"] == 1024
