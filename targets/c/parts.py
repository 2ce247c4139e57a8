"""Parts of a model as C: the regions of an external module, each planned as a model of its own, in one file."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np

from mirlo.dialects.bindings import func, ir
from mirlo.dialects.core.attributes import dense_attribute
from mirlo.dialects.core.surgery import clone_with
from mirlo.dialects.core.symbols import ENTRY_NAME, mark_entry, symbol_name
from mirlo.passes.byoc.read_external import Constants
from mirlo.passes.byoc.view import ExternalFunction, ExternalModule, ExternalValue
from mirlo.passes.memory.names import ALLOCATE
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.registry import PassError
from mirlo.passes.session import Session
from mirlo.runtime.artifact import TensorSpec
from mirlo.runtime.names import c_comment, c_identifier
from mirlo.runtime.params import ParameterStore
from mirlo.runtime.records import dataclass
from mirlo.targets.c.loader import OUT_OF_MEMORY, WRONG_SIZES
from mirlo.targets.c.model import INCLUDES, ModelText, join_texts, print_model
from mirlo.targets.c.pipeline import PART_PASSES
from mirlo.targets.planned import ModelSignature, planned_entry, run_time_facts, signature_of

ALIGNMENT = 64
DLPACK = """\
/* DLPack's tensor. Tensors are contiguous and row-major; their strides are not read. */
#ifndef DLPACK_DLPACK_H_
typedef struct {
  void *data;
  struct { int32_t type, id; } device;
  int32_t ndim;
  struct { uint8_t code, bits; uint16_t lanes; } dtype;
  int64_t *shape;
  int64_t *strides;
  uint64_t byte_offset;
} DLTensor;
#endif
"""


@dataclass(frozen=True)
class Part:
    """A region as C."""

    name: str
    symbol: str
    model: ModelText
    params: tuple[str, ...]
    signature: ModelSignature
    symbols: tuple[str, ...]
    """The dims of the inputs that the call record begins with."""
    words: int
    """Words of the call record; 0 if all sizes are static."""

    @property
    def declaration(self) -> str:
        """Return the declaration of the function that programs call, on DLPack tensors: inputs, then outputs."""
        return f"int32_t {self.symbol}(void *params, DLTensor **tensors, int64_t count)"

    def text(self) -> str:
        """Return the definition of that function."""
        specs = (*self.signature["inputs"], *self.signature["outputs"])
        data = [f"(char *)tensors[{i}]->data + tensors[{i}]->byte_offset" for i in range(len(specs))]
        lines = ["  void *arena;", f"  void *data[{len(specs) + 1}];", "  (void)count;"]
        lines += [f"  data[{i}] = {place};" for i, place in enumerate(data)]
        arena = str(self.signature["arena"])
        if self.words:
            lines.insert(0, f"  int64_t record[{self.words}] = {{0}};")
            lines += [
                f"  record[{2 + i}] = {_measured(dim, self.signature['inputs'], self.name)};"
                for i, dim in enumerate(self.symbols)
            ]
            lines += [
                f"  {self.symbol}_model_sizes(record);", f"  if (record[0]) return {WRONG_SIZES};",
                f"  data[{len(specs)}] = record;",
            ]  # fmt: skip
            arena = f"record[{2 + len(self.symbols)}]"
        lines += [
            f"  arena = (uint64_t){arena} < SIZE_MAX ? malloc((size_t){arena} + 1) : NULL;",
            f"  if (!arena) return {OUT_OF_MEMORY};",
            f"  {self.symbol}_model_run(data, (void **)params, (int8_t *)arena);",
            "  free(arena);",
            f"  return {f'record[0] ? {WRONG_SIZES} : 0' if self.words else '0'};",
        ]
        inside = "\n".join(lines)
        return f"/* Region '{c_comment(self.name)}'. */\n{self.declaration} {{\n{inside}\n}}\n"


@dataclass
class PartsSource:
    """The source of all regions of a module."""

    module: ExternalModule

    @property
    def params(self) -> tuple[str, ...]:
        """Return the names of the constants in the order of the array `params`."""
        return tuple(self._places)

    @property
    def drivers(self) -> dict[str, str]:
        """Return the function of each region in `linked_text`."""
        return {part.name: f"{part.symbol}_driver" for part in self.parts}

    @cached_property
    def _inline(self) -> Mapping[str, np.ndarray]:
        """Return the constants that are written into the source."""
        constants = self.module.constants
        return constants.inline if isinstance(constants, Constants) else {}

    @cached_property
    def _places(self) -> dict[str, int]:
        handed_in = (name for name in self.module.constants if name not in self._inline)
        return {name: place for place, name in enumerate(handed_in)}

    @cached_property
    def parts(self) -> list[Part]:
        return [self._part(function) for function in self.module.functions]

    def _part(self, function: ExternalFunction) -> Part:
        store = ParameterStore()
        for name in self._places:
            store.add(name, self.module.constants[name])
        with self.module.operation.context, ir.Location.unknown():
            module = region_module(function, self._inline)
            Pipeline(",".join(PART_PASSES)).run(module, Session(store))
            main = planned_entry(module)
            signature, facts = signature_of(main), run_time_facts(main, module)
            if ALLOCATE in map(symbol_name, module.body.operations):
                raise PassError(f"region '{function.name}': its sizes depend on data")
            symbol = c_identifier(function.name)
            model = print_model(module, f"{symbol}_", self._places)
        symbols, sizes = tuple(facts.get("symbols", ())), facts.get("sizes", ())
        words = 3 + len(symbols) + len(sizes) if sizes else 0
        params = tuple(spec.name for spec in signature["params"])
        return Part(function.name, symbol, model, params, signature, symbols, words)

    def text(self) -> str:
        """Return the source file."""
        title = f"/* Written by Mirlo, target '{c_comment(self.module.target)}'.{self._contents()} */"
        includes = "\n".join(f"#include <{name}>" for name in (*INCLUDES, "stdlib.h"))
        texts = [text for part in self.parts for text in part.model.externs]
        texts += [text for part in self.parts for text in part.model.run_time]
        texts += [text for part in self.parts for text in (*part.model.functions, part.text())]
        return "\n".join([title, includes, "", DLPACK, join_texts(texts)])

    def linked_text(self) -> str:
        """Return the source file of a library: the functions are static, and drivers call them."""
        head = '#include "mirlo.h"\n\n#define DLPACK_DLPACK_H_ /* mirlo.h has its tensor */\n'
        text = self.text()
        for part in self.parts:
            text = text.replace(f"{part.declaration} {{", f"static {part.declaration} {{")
        drivers = [
            f"int {name}(const mirlo_region *region, DLTensor **tensors, int64_t count) {{\n"
            f"  return {part.symbol}((void *)region->weights, tensors, count);\n}}\n"
            for part, name in zip(self.parts, self.drivers.values(), strict=True)
        ]
        return "\n".join([head + text, *drivers])

    def header(self) -> str:
        """Return the header for programs that call the functions."""
        lines = [f"/* Written by Mirlo, target '{c_comment(self.module.target)}'.{self._contents()} */", "#pragma once"]
        lines += ["#include <stddef.h>", "#include <stdint.h>", "", DLPACK]
        lines += ["/* Inputs, then outputs. Not 0: there is no memory (1), or sizes do not fit (2). */"]
        return "\n".join([*lines, *(f"{part.declaration};" for part in self.parts), ""])

    def _contents(self) -> str:
        """Return a comment that lists the array `params`."""
        if not self.params:
            return " No constants are handed in: `params` may be NULL."
        rows = []
        for place, name in enumerate(self.params):
            array = self.module.constants[name]
            rows.append(c_comment(f"   params[{place}]: {array.dtype}{list(array.shape)} {name}"))
        return "\n   Constants are handed in, as an array of pointers:\n" + "\n".join(rows) + "\n"


def region_module(function: ExternalFunction, inline: Mapping[str, np.ndarray]) -> ir.Module:
    """Return a module whose `main` has the operators of a region, in the current context.

    Constants in `inline` are values, the others parameters.
    """
    module = ir.Module.create()
    inputs, outputs = ([value.type.to_mlir() for value in side] for side in (function.inputs, function.outputs))
    with ir.InsertionPoint(module.body):
        main = func.FuncOp(ENTRY_NAME, ir.FunctionType.get(inputs, outputs))
        mark_entry(main)
        entry = main.add_entry_block()
    values: dict[ExternalValue, ir.Value] = dict(zip(function.inputs, entry.arguments, strict=True))
    with ir.InsertionPoint(entry):
        for constant in function.constants:
            values[constant] = _constant(constant, inline)
        for node in function.nodes:
            op = node.operation.operation
            clone = clone_with(op, [values[value] for value in node.inputs], op.location)
            values.update(zip(node.outputs, clone.results, strict=True))
        func.ReturnOp([values[value] for value in function.outputs])
    return module


def _constant(value: ExternalValue, inline: Mapping[str, np.ndarray]) -> ir.Value:
    assert value.constant is not None
    attribute: dict[str, ir.Attribute]
    if value.constant in inline:
        attribute = {"value": dense_attribute(inline[value.constant], value.type)}
    else:
        attribute = {"param": ir.StringAttr.get(value.constant)}
    return ir.Operation.create("relax.constant", results=[value.type.to_mlir()], attributes=attribute).results[0]


def _measured(dim: str, inputs: tuple[TensorSpec, ...], region: str) -> str:
    """Return the C expression that reads a dim from the shapes of the inputs."""
    for i, spec in enumerate(inputs):
        for axis, size in enumerate(spec.shape):
            if size == dim:
                return f"tensors[{i}]->shape[{axis}]"
    raise PassError(f"region '{region}': no input has the dim '{dim}'")


def weights_blob(target: str, params: Mapping[str, np.ndarray]) -> tuple[bytes, str]:
    """Return the concatenated external constants and C code that locates them in a copy of that data."""
    blob, lines = bytearray(), []
    target = c_identifier(target)
    for place, array in enumerate(params.values()):
        blob += bytes(-len(blob) % ALIGNMENT)
        lines.append(f"  params[{place}] = (const char *)file + {len(blob)};")
        blob += np.ascontiguousarray(array).tobytes()
    count = f"#define {target.upper()}_PARAMS {len(lines)}\n#define {target.upper()}_PARAMS_BYTES {len(blob)}\n"
    what = f"/* The array that functions take as `params`, from the bytes of {target}_params.bin in memory. */\n"
    head = f"static inline void {target}_bind_params(const void *file, const void **params) {{\n"
    return bytes(blob), "" if not lines else count + what + head + "\n".join([*lines, "}", ""])
