"""Writing of a model for a processor without an operating system: one source file, its header, and a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mirlo.runtime.artifact import TensorSpec
from mirlo.runtime.dtypes import numpy_dtype
from mirlo.runtime.names import c_comment, c_identifier
from mirlo.targets.c.model import ENTRY, STANDARD
from mirlo.targets.c.weights import weights_text
from mirlo.targets.llvm.library.description import Description, LibraryError

LARGEST = (1 << 31) - 1
"""Most bytes of a buffer: indices are 32-bit."""
_TYPES = {"bool": "bool", "f32": "float", "f64": "double", "f16": "uint16_t", "bf16": "uint16_t"}


def bare_files(description: Description, processor: Mapping[str, Any], weights: str) -> dict[str, bytes]:
    """Return the files of a model: `NAME.c`, `NAME.h` and `NAME.txt`, the report."""
    _require_static(description, weights)
    name = description.name
    return {
        f"{name}.c": bare_source(description, processor).encode(),
        f"{name}.h": _header(description, processor).encode(),
        f"{name}.txt": ("\n".join(report_lines(description, processor)) + "\n").encode(),
    }


def _require_static(description: Description, weights: str) -> None:
    artifact = description.artifact
    where = "a processor without an operating system"
    if weights == "beside":
        raise LibraryError(f"weights: expected 'embed' or 'auto', found 'beside': {where} has no files")
    if description.sizes.is_dynamic or artifact.metadata.get("allocates"):
        dims = sorted({str(dim) for spec in artifact.inputs for dim in spec.shape if not isinstance(dim, int)})
        unknown = ", ".join(dims) or "sizes that depend on data"
        raise LibraryError(
            f"the model has dynamic dims ({unknown}), {where} has static memory: fix them with --dim NAME=SIZE"
        )
    if description.functions or description.linked:
        called = ", ".join(function.name for function in description.functions)
        raise LibraryError(f"the model calls {called}: for {where}, target 'c' has to compute all of it")
    for what, size in (("weights", description.weights_bytes), ("arena", artifact.arena_bytes)):
        if size > LARGEST:
            raise LibraryError(f"the {what} of the model take {size} bytes, {where} has 32-bit addresses")


def bare_source(description: Description, processor: Mapping[str, Any]) -> str:
    """Return the source file: kernels, constant weights, the static arena, and the function that programs call."""
    artifact = description.artifact
    lines = [f"Model {description.name} in C99 for {processor['name']}, written by Mirlo.", *description.signature()]
    comment = "/* " + "\n * ".join(c_comment(line) for line in lines) + " */\n"
    texts = [f'{comment}#include "{description.name}.h"\n\n{STANDARD}', artifact.code.decode()]
    places = "NULL"
    if description.weights_bytes:
        listed = ",\n  ".join(f"(void *)(uintptr_t)(model_weights.bytes + {offset})" for offset in description.offsets)
        texts.append(weights_text(description))
        texts.append(f"static void *const model_places[] = {{\n  {listed}}};\n")
        places = "(void **)(uintptr_t)model_places"
    arena = "NULL"
    if artifact.arena_bytes:
        texts.append(f"static union {{\n  int8_t bytes[{artifact.arena_bytes}];\n  double numbers;\n}} model_arena;\n")
        arena = "model_arena.bytes"
    tensors = [f"(void *)(uintptr_t){name}" for name, _ in _parameters(description)]
    texts.append(
        f"{_prototype(description)} {{\n  void *tensors[{max(len(tensors), 1)}];\n"
        + "".join(f"  tensors[{i}] = {text};\n" for i, text in enumerate(tensors))
        + f"  {ENTRY}(tensors, {places}, {arena}, NULL);\n}}\n"
    )
    return "\n".join(texts)


def _parameters(description: Description) -> list[tuple[str, str]]:
    """Return the name and the declaration of each parameter, inputs before outputs."""
    artifact = description.artifact
    result: dict[str, str] = {}
    for kind, specs in (("input", artifact.inputs), ("output", artifact.outputs)):
        for i, spec in enumerate(specs):
            name = f"{kind}_{c_identifier(spec.name)}"
            if name in result:
                name = f"{kind}{i}"
            result[name] = f"{'const ' if kind == 'input' else ''}{_element(spec)} *{name}"
    return list(result.items())


def _element(spec: TensorSpec) -> str:
    if spec.dtype in _TYPES:
        return _TYPES[spec.dtype]
    return f"{'u' if spec.dtype.startswith('u') else ''}int{8 * numpy_dtype(spec.dtype).itemsize}_t"


def _prototype(description: Description) -> str:
    declared = ", ".join(text for _, text in _parameters(description))
    return f"void {description.name}_run({declared or 'void'})"


def _header(description: Description, processor: Mapping[str, Any]) -> str:
    name, artifact = description.name, description.artifact
    guard = f"{name.upper()}_H"
    lines = [
        f"Model {name} for {processor['name']}, written by Mirlo.",
        *description.signature(),
        "",
        f"Compile with: {' '.join(('-std=c99 -O2', *processor['flags']))}",
        f"{name}_run uses one static arena: do not call it from two threads or from an interrupt at a time.",
        "Tensors are contiguous, in the memory of the caller, and aligned to their elements.",
    ]
    comment = "/* " + "\n * ".join(c_comment(line) for line in lines) + " */"
    return f"""{comment}
#ifndef {guard}
#define {guard}

#include <stdbool.h>
#include <stdint.h>

#define {name.upper()}_ARENA_BYTES {artifact.arena_bytes}
#define {name.upper()}_WEIGHTS_BYTES {description.weights_bytes}

#ifdef __cplusplus
extern "C" {{
#endif

{_prototype(description)};

#ifdef __cplusplus
}}
#endif

#endif
"""


def report_lines(description: Description, processor: Mapping[str, Any]) -> list[str]:
    """Return the report: memory of the model, then a row per kernel."""
    artifact = description.artifact
    rows: Sequence[Mapping[str, Any]] = processor["kernels"]
    plan = artifact.metadata.get("memory", {})
    caller = sum(_bytes(spec) for spec in (*artifact.inputs, *artifact.outputs))
    bound = plan.get("bound", 0)
    over = (
        f" ({artifact.arena_bytes / bound - 1:+.1%} to the {bound} bytes that are alive at the worst moment)"
        if bound
        else ""
    )
    lines = [
        f"model {description.name} for {processor['name']}",
        f"flash, weights: {description.weights_bytes} bytes",
        f"RAM, arena: {artifact.arena_bytes} bytes{over}",
        f"RAM, stack: at most {max((row['stack'] for row in rows), default=0)} bytes of arrays, and the frames of "
        "the C compiler",
        f"RAM of the caller, inputs and outputs: {caller} bytes",
        f"multiply-adds: {sum(row['products'] for row in rows)}",
        "",
        f"{'kernel':40}  {'multiply-adds':>13}  {'flash':>9}  {'RAM':>9}  {'stack':>6}  nodes",
    ]
    return lines + [
        f"{row['kernel'][:40]:40}  {row['products']:>13}  {row['flash']:>9}  {row['ram']:>9}  {row['stack']:>6}  "
        f"{c_comment(row['nodes'])}"
        for row in rows
    ]


def _bytes(spec: TensorSpec) -> int:
    count = numpy_dtype(spec.dtype).itemsize
    for dim in spec.shape:
        count *= int(dim)
    return count
