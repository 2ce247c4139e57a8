"""Converters of ATen beside PyTorch's decompositions of the same operators.

python -m benchmarks.aten_decompositions [--types float32,int64] [--most SAMPLES] [OPERATOR ...]
python -m benchmarks.aten_decompositions --times [OPERATOR ...]

Each sample of PyTorch's operator database is exported, with static and with dynamic sizes, and imported with and
without the converter of an operator. A line says in how many samples the operations after `simplify` are the same,
others, or none because the decomposition cannot be imported, with the number of operations of the first that differs.
With `--times`, compiled calls of larger operands are compared: the ratios of processor times, least and median, in
turns. Needs torch and expecttest.
"""

from __future__ import annotations

import argparse
import re
import statistics
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from mirlo.benchmarks.aten_samples import Sample, entries, samples_of

PASSES = "simplify,fold-constant,simplify,func.func(cse),remove-dead"
SECONDS = 1.0
"""Processor time of the calls of a case that is timed."""


@dataclass
class Comparison:
    """What became of the samples of an operator without its converter."""

    outcomes: Counter[str] = field(default_factory=Counter)
    example: str = ""
    """The operations with and without the converter, or the error, of the first sample that differs."""


def compare(names: Sequence[str], types: Sequence[str], most: int) -> dict[str, Comparison]:
    """Compare the converters of operators that PyTorch decomposes, of all if no names are given."""
    import torch
    from mirlo_torch.decompose import _targets
    from mirlo_torch.graph import target_name

    result: dict[str, Comparison] = defaultdict(Comparison)
    for sample in _samples(types, most):
        for is_dynamic in (False, True):
            try:
                program = _exported(sample, is_dynamic)
                kept, count = _operations(program)
            except Exception:
                continue  # torch.export does not trace it, or it is refused
            targets = {target_name(each): each for each in _targets(program)}
            for name in targets.keys() & (set(names) or targets.keys()):
                if not _is_decomposed(targets[name]):
                    continue
                comparison = result[name]
                with without_converter(name):
                    try:
                        other, others = _operations(program)
                    except Exception as problem:
                        comparison.outcomes["refused"] += 1
                        comparison.example = comparison.example or " ".join(str(problem).split())[:100]
                        continue
                comparison.outcomes["same" if kept == other else "others"] += 1
                if kept != other:
                    comparison.example = comparison.example or f"{count} operations, {others} without the converter"
            torch._dynamo.reset()
    return result


def _samples(types: Sequence[str], most: int) -> Iterator[Sample]:
    import torch

    for entry in entries(()):
        for dtype in (getattr(torch, name) for name in types):
            if entry.supports_dtype(dtype, "cpu"):
                yield from (sample for sample, _ in samples_of(entry, dtype, most))


def _exported(sample: Sample, is_dynamic: bool) -> Any:
    import torch

    class Call(torch.nn.Module):  # type: ignore[misc]
        def forward(self, *tensors: Any) -> Any:
            return tuple(sample.call(list(tensors)))

    tensors = tuple(each.clone() for each in sample.tensors)
    sizes = [
        {axis: torch.export.Dim.AUTO for axis, size in enumerate(each.shape) if size > 1 and is_dynamic}
        for each in tensors
    ]
    with torch.no_grad():
        return torch.export.export(Call(), tensors, dynamic_shapes=(tuple(sizes),))


def _is_decomposed(target: Any) -> bool:
    from mirlo_torch.graph import target_name
    from mirlo_torch.registry import CONVERTERS
    from torch._decomp import decomposition_table
    from torch.export import default_decompositions

    if target_name(target) not in CONVERTERS:
        return False
    return target in default_decompositions() or target in decomposition_table or bool(target._can_decompose())


def _operations(program: Any) -> tuple[str, int]:
    """Return the text of a program after the rules of the graph, without names, and the number of operations."""
    from mirlo_torch.decompose import decomposed
    from mirlo_torch.importer import import_exported

    from mirlo.passes.pipeline import Pipeline
    from mirlo.passes.session import Session

    module, params = import_exported(decomposed(program))
    Pipeline(PASSES).run(module, Session(params=params))
    text = re.sub(r'(param|relax\.name) = "[^"]*"', r"\1", str(module))
    numbers: dict[str, str] = {}
    text = re.sub(r"%[\w#]+", lambda match: numbers.setdefault(match[0], f"%{len(numbers)}"), text)
    return text, sum("relax." in line and "relax.constant" not in line for line in text.splitlines()[2:])


@contextmanager
def without_converter(name: str) -> Iterator[None]:
    """Leave an operator to PyTorch's decomposition."""
    from mirlo_torch.registry import COMPLEX, CONVERTERS

    held = [(table, table.pop(name)) for table in (CONVERTERS, COMPLEX) if name in table]
    try:
        yield
    finally:
        for table, converter in held:
            table[name] = converter


def cases() -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """Return calls that are timed, by operator."""
    import torch
    import torch.nn.functional as f

    torch.manual_seed(0)
    x, y, row = torch.randn(256, 1024), torch.rand(256, 1024) * 0.98 + 0.01, torch.randn(1024)
    at, image, signal = torch.randint(0, 256, (512,)), torch.randn(1, 16, 64, 64), torch.randn(1, 64, 255)
    heads = tuple(torch.randn(1, 4, 64, 32) for _ in range(3))
    return {
        "elu.default": (f.elu, (x,)),
        "celu.default": (lambda x: f.celu(x, 1.3), (x,)),
        "leaky_relu.default": (lambda x: f.leaky_relu(x, 0.1), (x,)),
        "hardsigmoid.default": (f.hardsigmoid, (x,)),
        "softshrink.default": (f.softshrink, (x,)),
        "hardshrink.default": (f.hardshrink, (x,)),
        "logit.default": (lambda x: torch.logit(x, 1e-3), (y,)),
        "log_sigmoid.default": (f.logsigmoid, (x,)),
        "glu.default": (f.glu, (x,)),
        "isfinite.default": (torch.isfinite, (x,)),
        "prelu.default": (f.prelu, (x, row)),
        "clamp.Tensor": (torch.clamp, (x, -row.abs(), row.abs())),
        "lerp.Scalar": (lambda x, y: torch.lerp(x, y, 0.3), (x, y)),
        "floor_divide.default": (torch.floor_divide, (x, y)),
        "index_add.default": (lambda x, at, new: x.index_add(0, at, new), (x, at, torch.randn(512, 1024))),
        "index_fill.int_Scalar": (lambda x, at: x.index_fill(0, at, 1.0), (x, at)),
        "index_select.default": (lambda x, at: x.index_select(0, at), (x, at)),
        "embedding.default": (lambda x, at: f.embedding(at, x), (x, at)),
        "take.default": (torch.take, (x, at)),
        "mv.default": (torch.mv, (x, row)),
        "dot.default": (torch.dot, (x.reshape(-1), y.reshape(-1))),
        "einsum.default": (lambda q, k: torch.einsum("bhqd,bhkd->bhqk", q, k), heads[:2]),
        "linear.default": (f.linear, (torch.randn(4, 16, 256), torch.randn(256, 256), torch.randn(256))),
        "logsumexp.default": (lambda x: torch.logsumexp(x, -1), (x,)),
        "roll.default": (lambda x: x.roll((3, 5), (0, 1)), (x,)),
        "triu.default": (torch.triu, (x,)),
        "avg_pool1d.default": (lambda x: f.avg_pool1d(x, 3), (signal,)),
        "adaptive_avg_pool1d.default": (lambda x: f.adaptive_avg_pool1d(x, 15), (signal,)),
        "max_pool2d_with_indices.default": (lambda x: f.max_pool2d(x, 2, return_indices=True), (image,)),
        "upsample_nearest2d.vec": (lambda x: f.interpolate(x, scale_factor=2), (image,)),
        "upsample_bilinear2d.vec": (lambda x: f.interpolate(x, scale_factor=2, mode="bilinear"), (image,)),
        "upsample_bicubic2d.vec": (lambda x: f.interpolate(x, scale_factor=2, mode="bicubic"), (image,)),
        "native_group_norm.default": (
            lambda x: torch.native_group_norm(x, None, None, 1, 16, 4096, 4, 1e-5)[0], (image,)
        ),
        "native_layer_norm.default": (lambda x: torch.native_layer_norm(x, [1024], None, None, 1e-5)[0], (x,)),
        "scaled_dot_product_attention.default": (f.scaled_dot_product_attention, heads),
        "stack.default": (lambda x, y: torch.stack([x, y], 1), (x, y)),
        "repeat.default": (lambda x: x.repeat(2, 2), (x,)),
        "select_scatter.default": (lambda x, row: x.select_scatter(row, 0, 3), (x, row)),
        "slice_scatter.default": (lambda x, y: x.slice_scatter(y, 0, 2, 66), (x, x[:64])),
    }  # fmt: skip


def times(names: Sequence[str]) -> None:
    """Print what calls take without the converter, as a part of what they take with it."""
    for name, (function, operands) in cases().items():
        if names and f"aten.{name}" not in names:
            continue
        kept = _compiled(function, operands)
        with without_converter(f"aten.{name}"):
            try:
                other = _compiled(function, operands)
            except Exception as problem:
                print(f"aten.{name:38} refused: {' '.join(str(problem).split())[:90]}", flush=True)
                continue
        spent: tuple[list[float], list[float]] = ([], [])
        begin = time.process_time()
        while time.process_time() - begin < SECONDS or len(spent[0]) < 9:
            for call, taken in zip((kept, other), spent, strict=True):
                start = time.process_time()
                call()
                taken.append(time.process_time() - start)
        least, median = (measure(spent[1]) / measure(spent[0]) for measure in (min, statistics.median))
        print(f"aten.{name:38} {least:6.2f} {median:6.2f}   of {min(spent[0]) * 1e6:8.1f} us", flush=True)


def _compiled(function: Callable[..., Any], operands: Sequence[Any]) -> Callable[[], object]:
    import torch
    from mirlo_torch.tensors import to_input

    import mirlo

    class Call(torch.nn.Module):  # type: ignore[misc]
        def forward(self, *tensors: Any) -> Any:
            return function(*tensors)

    executable = mirlo.compile(Call().eval(), args=tuple(operands), cache=False, jobs=1)
    arrays = [to_input(each.contiguous()) for each in operands]
    return lambda: executable(*arrays)


def main() -> None:
    """Compare operators and print what was found."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.aten_decompositions", description=__doc__)
    parser.add_argument("operators", nargs="*", metavar="OPERATOR", help="names: aten.elu.default; all without any")
    parser.add_argument("--types", default="float32,int64", help="element types (%(default)s)")
    parser.add_argument("--most", type=int, default=2, help="samples of an operator and a type (%(default)s)")
    parser.add_argument("--times", action="store_true", help="compare compiled calls")
    arguments = parser.parse_args()
    import torch
    from mirlo_torch.declared_names import load_converters

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    load_converters()
    if arguments.times:
        times(arguments.operators)
        return
    for name, comparison in sorted(compare(arguments.operators, arguments.types.split(","), arguments.most).items()):
        counts = ", ".join(f"{number} {kind}" for kind, number in sorted(comparison.outcomes.items()))
        print(f"{name:45} {counts:32} {comparison.example}")


if __name__ == "__main__":
    main()
