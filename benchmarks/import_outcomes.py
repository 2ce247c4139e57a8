"""What the import makes of generated models: `python -m benchmarks.import_outcomes [--mutated N] [OTHER]`.

The models are those of ONNX's own cases, about 3,900: as they are, with short lists and numbers as constants, and with
a first dim that is dynamic. A line for each has its name and its outcome: the types of `@main`, with a hash of the
text of the operations, or the error. Given a file with the lines of another revision, those whose types or errors
differ are listed. With `--mutated`, the models are N of these cases with changed structure, sizes from data, and dims
that are symbols (`mutated_cases.py`).
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mirlo.benchmarks.mutated_cases import mutated_cases

MOST_ELEMENTS = 16
"""Elements of inputs that become constants: lists of sizes and axes, scales and zero points."""


def models() -> Iterator[tuple[str, Any]]:
    """Yield names and models."""
    from onnx.backend.test.case.node import collect_testcases

    for case in collect_testcases(None):
        if case.model is None:
            continue
        yield case.name, case.model
        for kind, variant in (("constants", with_constants(case)), ("dynamic", with_dynamic_dims(case.model))):
            if variant is not None:
                yield f"{case.name}/{kind}", variant


def with_constants(case: Any) -> Any:
    """Return the model with its small integer inputs, and its inputs of one element, as constants; None if alike."""
    import onnx
    from onnx import numpy_helper

    model = onnx.ModelProto.FromString(case.model.SerializeToString())
    kept = []
    for declared, input_value in zip(model.graph.input, case.data_sets[0][0], strict=False):
        array = numpy_helper.to_array(input_value) if isinstance(input_value, onnx.TensorProto) else input_value
        is_array = hasattr(array, "dtype") and array.dtype.kind in "iubf"
        if is_array and (array.size == 1 or (array.size <= MOST_ELEMENTS and array.dtype.kind in "iu")):
            model.graph.initializer.append(numpy_helper.from_array(array, declared.name))
        else:
            kept.append(onnx.ValueInfoProto.FromString(declared.SerializeToString()))
    if not kept or len(kept) == len(model.graph.input):
        return None
    del model.graph.input[:]
    model.graph.input.extend(kept)
    return model


def with_dynamic_dims(original: Any) -> Any:
    """Return the model with a dynamic first dim of each input with more dims; None if there is no such input."""
    import onnx

    model = onnx.ModelProto.FromString(original.SerializeToString())
    shapes = [each.type.tensor_type.shape for each in model.graph.input if each.type.HasField("tensor_type")]
    if not any(len(shape.dim) > 1 for shape in shapes):
        return None
    for shape in shapes:
        if len(shape.dim) > 1:
            shape.dim[0].dim_param = "n"
    del model.graph.value_info[:]
    for output in model.graph.output:
        if output.type.HasField("tensor_type"):
            for dim in output.type.tensor_type.shape.dim:
                dim.Clear()
    return model


def outcome(model: Any) -> str:
    """Return the types of the imported function and the hash of its text, or the error, on one line."""
    from mirlo.frontends.onnx import import_model

    try:
        module, _ = import_model(model)
    except Exception as error:  # what the import raises is its outcome
        return " ".join(f"{type(error).__name__}: {error}".split())
    text = str(module)
    declared = next((line for line in text.splitlines() if "func.func @main" in line), "a program of parts")
    return f"{declared.strip()}\t{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def main(arguments: list[str]) -> None:
    """Print the outcomes, or how those of another revision differ."""
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description="Print what the import makes of generated models.")
    parser.add_argument(
        "--mutated", type=int, default=0, metavar="N", help="number of mutated cases, instead of all cases"
    )
    parser.add_argument("other", nargs="?", type=Path, help="the lines of another revision, to compare with")
    options = parser.parse_args(arguments)
    before: dict[str, str] = {}
    if options.other is not None:
        lines = options.other.read_text(encoding="utf-8").splitlines()
        before = dict(line.split("\t", 1) for line in lines)
    counts: Counter[str] = Counter()
    for name, model in mutated_cases(options.mutated) if options.mutated else models():
        current = outcome(model)
        if options.other is None:
            print(f"{name}\t{current}", flush=True)
            continue
        other = before.get(name, "no line")
        alike = current.split("\t")[0] == other.split("\t")[0]
        counts["same" if current == other else "same types, other operations" if alike else "different"] += 1
        if not alike:
            print(f"{name}\n  before {other}\n  now    {current}", flush=True)
    if options.other is not None:
        print(", ".join(f"{number} {what}" for what, number in sorted(counts.items())))


if __name__ == "__main__":
    main(sys.argv[1:])
