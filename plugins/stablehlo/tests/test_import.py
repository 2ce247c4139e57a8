"""Reading StableHLO: formats, names, sizes, budgets; and errors with cause and location."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from mirlo_stablehlo.errors import StablehloImportError
from mirlo_stablehlo.importer import import_stablehlo

import mirlo
from mirlo.extend.frontend import ir, new_context, stablehlo
from mirlo.extend.runtime import MirloError

SMALL = """func.func @main(%x: tensor<2x3xf32> {mlir.name = "image"}) -> (tensor<2x3xf32> {jax.result_info = "y"}) {
  %0 = stablehlo.add %x, %x : tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}"""


def portable(text: str) -> bytes:
    """Return a program as portable bytecode."""
    extension = stablehlo()
    context = new_context()
    extension.register_dialect(context)
    with context:
        made: bytes = extension.serialize_portable_artifact(ir.Module.parse(text), extension.get_current_version())
    return made


@pytest.mark.parametrize("suffix", [".mlir", ".mlirbc"])
def test_files(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"model{suffix}"
    path.write_bytes(SMALL.encode() if suffix == ".mlir" else portable(SMALL))
    exe = mirlo.compile(path, cache=False)
    assert [spec.name for spec in exe.inputs] == ["image"] and [spec.name for spec in exe.outputs] == ["y"]
    np.testing.assert_array_equal(exe(np.ones((2, 3), np.float32)), np.full((2, 3), 2, np.float32))


@pytest.mark.sample(0)
def test_damaged_bytecode(tmp_path: Path) -> None:
    whole = portable(SMALL)
    random = np.random.default_rng(0)
    path = tmp_path / "model.mlirbc"
    for _ in range(20):
        content = bytearray(whole)
        for at in random.integers(30, len(content), 3):
            content[at] = random.integers(256)
        path.write_bytes(bytes(content[: random.integers(40, len(content))]))
        with pytest.raises((MirloError, ValueError), match=r"model\.mlirbc"):
            mirlo.compile(path, cache=False)


def _main(body: str, given: str = "%x: tensor<4xf32>", made: str = "tensor<4xf32>") -> str:
    return f"func.func @main({given}) -> {made} {{\n{body}\n}}"


ERRORS = {
    "is not valid StableHLO": "func.func @main( {",
    "expected a function @main, found none": "",
    "export the function": _main("%0 = chlo.erf %x : tensor<4xf32> -> tensor<4xf32>\nreturn %0 : tensor<4xf32>"),
    r"'stablehlo.rng' at .*:2:6: makes random numbers": _main(
        "%s = stablehlo.constant dense<4> : tensor<1xi64>\n%c = stablehlo.constant dense<0.0> : tensor<f32>\n"
        "%0 = stablehlo.rng %c, %c, %s, distribution = NORMAL : (tensor<f32>, tensor<f32>, tensor<1xi64>) "
        "-> tensor<4xf32>\nreturn %0 : tensor<4xf32>"
    ).replace(":2:6", ""),
    "'stablehlo.uniform_quantize' at .*:2:6: has quantized types: hand over a model with integers": _main(
        "%0 = stablehlo.uniform_quantize %x : (tensor<4xf32>) -> tensor<4x!quant.uniform<i8:f32, 0.5>>\n"
        "%1 = stablehlo.uniform_dequantize %0 : (tensor<4x!quant.uniform<i8:f32, 0.5>>) -> tensor<4xf32>\n"
        "return %1 : tensor<4xf32>"
    ),
    "'stablehlo.outfeed' at .*:2:6: communicates with the host": _main(
        "%t = stablehlo.create_token : !stablehlo.token\n"
        '%0 = "stablehlo.outfeed"(%x, %t) : (tensor<4xf32>, !stablehlo.token) -> !stablehlo.token\n'
        "return %x : tensor<4xf32>"
    ),
    "calls 'lapack_sgeqrf_ffi', .* of LAPACK, real LU": _main(
        "%0 = stablehlo.custom_call @lapack_sgeqrf_ffi(%x) : (tensor<4xf32>) -> tensor<4xf32>\n"
        "return %0 : tensor<4xf32>"
    ),
    "calls @main, which calls itself": _main(
        "%0 = call @main(%x) : (tensor<4xf32>) -> tensor<4xf32>\nreturn %0 : tensor<4xf32>"
    ),
    r"input 'arg0' is tuple<tensor<4xf32>>: expected": _main(
        "%0 = stablehlo.get_tuple_element %x[0] : (tuple<tensor<4xf32>>) -> tensor<4xf32>\nreturn %0 : tensor<4xf32>",
        "%x: tuple<tensor<4xf32>>",
    ),
    r"the program returns tuple<tensor<4xf32>, tensor<4xf32>>: return the tensors": _main(
        "%0 = stablehlo.tuple %x, %x : tuple<tensor<4xf32>, tensor<4xf32>>\n"
        "return %0 : tuple<tensor<4xf32>, tensor<4xf32>>",
        made="tuple<tensor<4xf32>, tensor<4xf32>>",
    ),
    "compares by another function": _main(
        '%0 = "stablehlo.sort"(%x) ({\n^bb0(%a: tensor<f32>, %b: tensor<f32>):\n'
        "%1 = stablehlo.add %a, %b : tensor<f32>\n"
        "%2 = stablehlo.compare LT, %1, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>\n"
        "stablehlo.return %2 : tensor<i1>\n}) : (tensor<4xf32>) -> tensor<4xf32>\nreturn %0 : tensor<4xf32>"
    ),
}


@pytest.mark.parametrize("message", ERRORS)
def test_errors(message: str) -> None:
    with pytest.raises(StablehloImportError, match=message.replace(" at .*:2:6:", " at .*:")):
        import_stablehlo(ERRORS[message], "model.mlir")


RESOURCES = """func.func @main() -> (tensor<2x2xTYPE>) {
  %0 = stablehlo.constant dense_resource<"a > \\22b"> : tensor<2x2xTYPE>
  return %0 : tensor<2x2xTYPE>
}
{-# dialect_resources: { builtin: { "a > \\22b": "0x40000000BYTES" } } #-}"""


@pytest.mark.parametrize(
    ("kind", "array"),
    [
        ("f32", np.array([[1.5, -0.0], [np.inf, 3e-40]], np.float32)),
        ("i1", np.array([[True, False], [False, True]])),
        ("ui8", np.array([[1, 255], [0, 7]], np.uint8)),
        ("i64", np.array([[-1, 2**62], [0, 7]])),
        ("complex<f32>", np.array([[1 - 2j, 3j], [0, 7]], np.complex64)),
    ],
    ids=str,
)
def test_constants_in_resources(kind: str, array: np.ndarray, tmp_path: Path) -> None:
    path = tmp_path / "model.mlir"
    path.write_text(RESOURCES.replace("TYPE", kind).replace("BYTES", array.tobytes().hex()))
    (found,) = mirlo.compile(path, cache=False).run({}).values()
    assert found.tobytes() == array.tobytes()


@pytest.mark.parametrize(
    ("kind", "content", "message"),
    [
        ("f32", "00000000", "has 4 bytes in the file, expected 16"),
        ("complex<f32>", "00000000", "has 4 bytes in the file, expected 32"),
        ("bf16", None, "is not in the file"),
    ],
)
def test_resources_that_do_not_fit(kind: str, content: str | None, message: str) -> None:
    text = RESOURCES.replace("TYPE", kind)
    text = text.partition("{-#")[0] if content is None else text.replace("BYTES", content)
    with pytest.raises(StablehloImportError, match=f"stablehlo.constant' at .*{message}"):
        import_stablehlo(text, "model.mlir")


@pytest.mark.parametrize("kind", ["f32", "complex<f32>"])
def test_sparse_constants(kind: str) -> None:
    value = "(1.0, 2.0)" if "complex" in kind else "1.0"
    body = f"%0 = stablehlo.constant sparse<[[0, 1]], {value}> : tensor<2x2x{kind}>\nreturn %0 : tensor<2x2x{kind}>"
    with pytest.raises(StablehloImportError, match=r"expected dense<\.\.\.> or dense_resource"):
        import_stablehlo(_main(body, "", f"tensor<2x2x{kind}>"))


@pytest.mark.sample(0)
def test_calls_have_a_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each function calls the next one ten times: copied at each call, they are ten million operations."""
    monkeypatch.setattr("mirlo.frontends.mlir.body.MAX_OPERATIONS", 5_000)
    lines = [_main("%0 = call @f0(%x) : (tensor<4xf32>) -> tensor<4xf32>\nreturn %0 : tensor<4xf32>")]
    for level in range(7):
        body = ["%0 = stablehlo.negate %x : tensor<4xf32>"]
        callee = f"@f{level + 1}"
        body += [f"%{i + 1} = call {callee}(%{i}) : (tensor<4xf32>) -> tensor<4xf32>" for i in range(10)]
        lines.append(_main("\n".join([*body, "return %10 : tensor<4xf32>"])).replace("@main", f"@f{level}"))
    lines.append(_main("%0 = stablehlo.negate %x : tensor<4xf32>\nreturn %0 : tensor<4xf32>").replace("@main", "@f7"))
    with pytest.raises(StablehloImportError, match="copied at each place, come to more than"):
        import_stablehlo("\n".join(lines))


def test_a_large_constant_of_one_value_takes_no_memory() -> None:
    form = "tensor<100000x100000xf32>"
    text = _main(
        f"%c = stablehlo.constant dense<1.0> : {form}\n"
        f"%0 = stablehlo.slice %c [0:4, 0:1] : ({form}) -> tensor<4x1xf32>\n"
        "%1 = stablehlo.reshape %0 : (tensor<4x1xf32>) -> tensor<4xf32>\nreturn %1 : tensor<4xf32>"
    )
    module, store = import_stablehlo(text)
    assert store.nbytes == 0
    np.testing.assert_array_equal(
        mirlo.compile(module, params=store, cache=False)(np.zeros(4, np.float32)), np.ones(4, np.float32)
    )


DYNAMIC = """func.func @main(%x: tensor<?x4xf32> {mlir.name = "x"}) -> tensor<?x2xf32> {
  %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x4xf32>) -> tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %m = stablehlo.multiply %n, %two : tensor<i32>
  %a = stablehlo.reshape %m : (tensor<i32>) -> tensor<1xi32>
  %b = stablehlo.constant dense<2> : tensor<1xi32>
  %shape = stablehlo.concatenate %a, %b, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %0 = stablehlo.dynamic_reshape %x, %shape : (tensor<?x4xf32>, tensor<2xi32>) -> tensor<?x2xf32>
  return %0 : tensor<?x2xf32>
}"""


def test_sizes_are_followed() -> None:
    module, store = import_stablehlo(DYNAMIC)
    exe = mirlo.compile(module, params=store, cache=False)
    assert str(exe.outputs[0]).endswith("f32[2*x_0, 2]")
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_array_equal(exe(x), x.reshape(6, 2))


def test_sizes_from_data_are_bound_in_the_call() -> None:
    text = DYNAMIC.replace("%x: tensor<?x4xf32> {", "%k: tensor<i32>, %x: tensor<?x4xf32> {").replace(
        "%m = stablehlo.multiply %n, %two", "%m = stablehlo.multiply %k, %two"
    )
    module, store = import_stablehlo(text)
    exe = mirlo.compile(module, params=store, cache=False)
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_array_equal(exe(np.int32(3), x), x.reshape(6, 2))
    with pytest.raises(MirloError):
        exe(np.int32(5), x)
