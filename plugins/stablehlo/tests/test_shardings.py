"""Shardings of Shardy and of XLA on ranks, compared with numpy on the whole tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mirlo_ranks.testing import TARGET, run_threads
from mirlo_stablehlo.errors import StablehloImportError
from mirlo_stablehlo.importer import import_stablehlo
from mirlo_stablehlo.sdy import generic_form

import mirlo
from mirlo.testing.commands import run_command

X = np.arange(64, dtype=np.float32).reshape(8, 8) % 11 - 5
W = np.arange(32, dtype=np.float32).reshape(8, 4) % 7 - 3
MESH = 'sdy.mesh @mesh = <["x"=2, "y"=2]>'
XLA_ROWS = '{mhlo.sharding = "{devices=[2,1,2]<=[4] last_tile_dim_replicate}"}'


def _results(text: str, parts: Any) -> list[list[np.ndarray]]:
    """Return the results of four ranks for each one's operands."""
    module, store = import_stablehlo(text)
    model = mirlo.compile(module, TARGET, params=store, ranks=4, opt_level=0, cache=False)
    return run_threads(model, lambda rank: [np.ascontiguousarray(each) for each in parts(rank)])


def _sharding(dims: str) -> str:
    return f"{{sdy.sharding = #sdy.sharding<@mesh, [{dims}]>}}"


def _product(x: str, w: str, y: str, mesh: str = MESH, constraint: str = "") -> str:
    last = "%1" if constraint else "%0"
    middle = f"%1 = sdy.sharding_constraint %0 <@mesh, [{constraint}]> : tensor<8x4xf32>" if constraint else ""
    return f"""module attributes {{mhlo.num_partitions = 4 : i32}} {{
  {mesh}
  func.func public @main(%x: tensor<8x8xf32> {x}, %w: tensor<8x4xf32> {w}) -> (tensor<8x4xf32> {y}) {{
    %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
      : (tensor<8x8xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
    {middle}
    return {last} : tensor<8x4xf32>
  }}
}}"""


ROWS, COLUMNS = slice(None), slice(None)
AXES = {
    '{"x"}': (2, [0, 0, 1, 1]), '{"y"}': (2, [0, 1, 0, 1]), '{"x", "y"}': (4, [0, 1, 2, 3]),
    '{"y", "x"}': (4, [0, 2, 1, 3]), "{}": (1, [0] * 4), '{"x", ?}': (2, [0, 0, 1, 1]), '{"y"}p1': (2, [0, 1, 0, 1]),
}  # fmt: skip
"""Into how many parts a dim is divided, and the part of each rank: written out by hand."""


def _part(whole: np.ndarray, dims: str, rank: int) -> np.ndarray:
    for axis, dim in enumerate(dims.split("; ")):
        count, places = AXES[dim]
        whole = np.split(whole, count, axis)[places[rank]]
    return whole


@pytest.mark.parametrize(
    ("x", "w", "y"),
    [
        ('{"x"}; {}', "{}; {}", '{"x"}; {}'),
        ('{"x"}; {"y"}', '{"y"}; {}', '{"x"}; {}'),
        ('{}; {"x"}', '{"x"}; {"y"}', '{}; {"y"}'),
        ('{"x", "y"}; {}', '{"x", "y"}; {}', '{"y", "x"}; {}'),
        ('{}; {"y", "x"}', '{"x"}; {"y"}', '{"x"}; {"y"}'),
        ('{"x", ?}; {}', '{}; {"y"}p1', '{"x"}; {"y"}'),
    ],
)
def test_a_product(x: str, w: str, y: str) -> None:
    text = _product(*(_sharding(dims.replace(";", ",")) for dims in (x, w, y)))
    for rank, (result,) in enumerate(_results(text, lambda rank: (_part(X, x, rank), _part(W, w, rank)))):
        assert np.array_equal(result, _part(X @ W, y, rank))


@pytest.mark.sample(0)
def test_constraints() -> None:
    text = _product("", "", _sharding('{}, {"x"}'), constraint='{"x"}, {"y"}')
    for rank, (result,) in enumerate(_results(text, lambda rank: (X, W))):
        assert np.array_equal(result, np.split(X @ W, 2, 1)[rank // 2])
    module, _ = import_stablehlo(_product("", "", "", constraint="{?}, {?}"))
    assert "relax.to_parts" not in str(module)  # all is left to the compiler


def test_parts_of_an_axis_and_orders_of_devices() -> None:
    mesh = 'sdy.mesh @mesh = <["a"=4], device_ids=[3, 1, 0, 2]>'
    text = _product(_sharding('{"a":(1)2}, {"a":(2)2}'), _sharding('{"a"}, {}'), "", mesh)
    place = {3: 0, 1: 1, 0: 2, 2: 3}  # of a device in the mesh

    def parts(rank: int) -> tuple[np.ndarray, np.ndarray]:
        at = place[rank]
        return np.split(np.split(X, 2)[at // 2], 2, 1)[at % 2], np.split(W, 4)[at]

    for (result,) in _results(text, parts):
        assert np.array_equal(result, X @ W)


def test_shardings_of_xla() -> None:
    """Tiles in the order of the devices, in a permuted one, in a list, and of all ranks."""
    columns = '{mhlo.sharding = "{devices=[1,2,2]<=[2,2]T(1,0) last_tile_dim_replicate}"}'
    listed = '{mhlo.sharding = "{devices=[2,2]3,1,0,2}"}'
    text = _product(XLA_ROWS, columns, listed, mesh="")
    order = {3: (0, 0), 1: (0, 1), 0: (1, 0), 2: (1, 1)}
    for rank, (result,) in enumerate(
        _results(text, lambda rank: (np.split(X, 2)[rank // 2], np.split(W, 2, 1)[rank % 2]))
    ):
        row, column = order[rank]
        assert np.array_equal(result, np.split(np.split(X @ W, 2)[row], 2, 1)[column])


MANUAL = """
  func.func public @main(%x: tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<4xf32>) {
    %0:2 = sdy.manual_computation(%x) in_shardings=[<@mesh, [{"x"}, {"y"}]>]
      out_shardings=[<@mesh, [{"x"}, {}]>, <@mesh, [{"y", "x"}]>] manual_axes={"x", "y"} (%a: tensor<4x4xf32>) {
      %1 = "stablehlo.all_gather"(%a) <{
        all_gather_dim = 1 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>,
        replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>, use_global_device_ids
      }> : (tensor<4x4xf32>) -> tensor<4x8xf32>
      %2 = func.call @first(%a) : (tensor<4x4xf32>) -> tensor<1xf32>
      %3 = sdy.sharding_constraint %1 <@mesh, [{}, {?}]> : tensor<4x8xf32>
      sdy.return %3, %2 : tensor<4x8xf32>, tensor<1xf32>
    } : (tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<4xf32>)
    return %0#0, %0#1 : tensor<8x8xf32>, tensor<4xf32>
  }
  func.func private @first(%a: tensor<4x4xf32>) -> tensor<1xf32> {
    %0 = stablehlo.slice %a [0:1, 0:1] : (tensor<4x4xf32>) -> tensor<1x1xf32>
    %1 = stablehlo.reshape %0 : (tensor<1x1xf32>) -> tensor<1xf32>
    return %1 : tensor<1xf32>
  }
"""


def _module(body: str, mesh: str = MESH, attributes: str = "mhlo.num_partitions = 4 : i32") -> str:
    return f"module attributes {{{attributes}}} {{\n{mesh}\n{body}\n}}"


@pytest.mark.parametrize("attributes", ["mhlo.num_partitions = 4 : i32", ""])
def test_a_manual_computation(attributes: str) -> None:
    """The number of processes is declared by the module or by its mesh."""
    for result, firsts in _results(_module(MANUAL, attributes=attributes), lambda rank: (X,)):
        assert np.array_equal(result, X)
        assert np.array_equal(firsts, [X[0, 0], X[4, 0], X[0, 4], X[4, 4]])


def test_one_process() -> None:
    """A program for one process has no parts."""
    for mesh, text in (
        ('sdy.mesh @mesh = <["x"=1, "y"=1]>', _product(_sharding('{"x"}, {"y"}'), "", "", constraint='{"x"}, {}')),
        ("sdy.mesh @mesh = <[], device_ids=[0]>", _product(_sharding("{}, {}"), "", "")),
    ):
        module, _ = import_stablehlo(text.replace(MESH, mesh).replace("partitions = 4", "partitions = 1"))
        assert "_parts" not in str(module)


def test_dims_that_do_not_divide_are_whole() -> None:
    text = _module(f"""func.func public @main(%x: tensor<7x8xf32> {_sharding('{"x"}, {"y"}')}) -> tensor<7x8xf32> {{
      %0 = stablehlo.add %x, %x : tensor<7x8xf32>
      return %0 : tensor<7x8xf32>
    }}""")
    for (result,) in _results(text, lambda rank: (np.split(X[:7], 2, 1)[rank % 2],)):
        assert np.array_equal(result, 2 * X[:7])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (_product(_sharding('{"z"}, {}'), "", ""), "names the axis 'z', which the mesh does not have"),
        (_product(_sharding('{"x"}, {"x"}'), "", ""), "divides several dims along one axis"),
        (_product(_sharding("{}, {}").replace("@mesh", "@other"), "", ""), "names the mesh @other, which"),
        (_product("", "", "", constraint='{"x":(3)2}, {}'), r"names a part \(3\)2 of the axis 'x' of 2"),
        (_product(_sharding("{}, {}").replace("]>}", '], unreduced={"x"}>}'), "", ""), "has an unreduced sharding"),
        (_product(_sharding('{"x"}, {}'), "", "", mesh='sdy.mesh @mesh = <["x"=3]>'), "has a mesh of 3 devices, but"),
        (
            _product('{mhlo.sharding = "{devices=[3,1]<=[3]}"}', "", "", mesh=""),
            "for 2 dims, and the program",
        ),
        (_product('{mhlo.sharding = "{odd}"}', "", "", mesh=""), "expected '{replicated}'"),
        (_product('{mhlo.sharding = "{devices=[2,2]<=[2,2]T(1,1)}"}', "", "", mesh=""), "for 2 dims, and the program"),
        (_product('{mhlo.sharding = "{devices=[4,0]<=[4]}"}', "", "", mesh=""), "for 2 dims, and the program"),
        (_product(_sharding("{}, {}, {}"), "", ""), "has a sharding of 3 dims, and a tensor of 2"),
        (_product("{sdy.sharding = #sdy.sharding<@mesh>}", "", ""), "expected one"),
        (_module(MANUAL.replace('[{"x"}, {"y"}]>]', '[{"x"}, {}]>]')), "but its body takes f32"),
        (
            _module(MANUAL.replace('[{"x"}, {"y"}]>]', '[{"x"}, {"y"}]>, <@mesh, []>]')),
            "has 2 shardings in 'in_",
        ),
        (_module(MANUAL.replace("manual_axes", "manual")), "is not written as Shardy does"),
        (_module(MANUAL.partition("sdy.return")[0]), "is not written as|has '{' without '}'"),
    ],
)
def test_programs_that_are_refused(text: str, message: str) -> None:
    with pytest.raises(StablehloImportError, match=message):
        import_stablehlo(text)


def test_strings_and_comments_are_no_operations() -> None:
    text = 'loc("sdy.mesh @a = <[]>") // sdy.return %0\n #sdy.sharding<@mesh, [{}]> {sdy.sharding = 1}'
    assert generic_form(text) == text
    nested = "sdy.manual_computation() in_shardings=[] out_shardings=[] manual_axes={} () {" * 30
    with pytest.raises(StablehloImportError, match="nested more than|without"):
        generic_form(nested + "} : () -> ()" * 30)


def test_ranks_have_the_same_exchanges() -> None:
    """A mask that is constant on one rank removes no sum there: the other ranks wait for it."""
    mask = ", ".join(["true"] * 4 + ["false"] * 4)
    text = _product(_sharding('{"x"}, {"y"}'), _sharding('{"y"}, {}'), _sharding('{"x"}, {}')).replace(
        "return %0",
        f"""%m = stablehlo.constant dense<[{mask}]> : tensor<8xi1>
    %c = stablehlo.broadcast_in_dim %m, dims = [0] : (tensor<8xi1>) -> tensor<8x4xi1>
    %v = stablehlo.slice %x [0:8, 0:4] : (tensor<8x8xf32>) -> tensor<8x4xf32>
    %s = stablehlo.select %c, %0, %v : tensor<8x4xi1>, tensor<8x4xf32>
    return %s""",
    )
    wanted = np.where(np.arange(8)[:, None] < 4, X @ W, X[:, :4])
    results = _results(text, lambda rank: (_part(X, '{"x"}; {"y"}', rank), _part(W, '{"y"}; {}', rank)))
    for rank, (result,) in enumerate(results):
        assert np.array_equal(result, np.split(wanted, 2)[rank // 2])


def test_report(tmp_path: Path) -> None:
    """The report lists what is computed whole, with the reason."""
    body = _product(_sharding('{}, {"x"}'), "", _sharding('{"x"}, {}')).replace(
        "return %0", "%s = stablehlo.reverse %x, dims = [1] : tensor<8x8xf32>\n    return %0"
    )
    (tmp_path / "program.mlir").write_text(body)
    explained = run_command("explain", "program.mlir", "--ranks", "4", cwd=tmp_path).stdout
    assert any({"relax.matmul", "row"} <= {*line.split()} for line in explained.splitlines())
    assert "its rule divides no dim that its operands divide" in explained
    assert "relax.reduce_scatter" in explained
