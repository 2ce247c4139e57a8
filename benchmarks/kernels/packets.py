"""Packets of Hexagon's code for products of int8: instructions and products of each packet of the inner loops.

python -m benchmarks.kernels.packets [--cpu hexagonv68]

A processor executes a packet, up to four instructions, in a cycle. `vrmpy` multiplies 128 pairs of int8.
"""

from __future__ import annotations

import argparse
import re

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from mirlo.driver.code import kernel_listings
from mirlo.driver.request import CompileRequest

PRODUCTS = 128
"""Products of a `vrmpy`."""
LABEL = re.compile(r"^(?:\.LBB\d+_\d+:|\w+:)", re.MULTILINE)
SIZES = ((1, 256, 64), (4, 256, 64), (64, 64, 64), (64, 256, 256))


def assembly(rows: int, depth: int, columns: int, cpu: str) -> str:
    """Return the assembly of a product of rows of u8 and constant columns of i8."""
    weight = numpy_helper.from_array(np.ones((depth, columns), np.int8), "w")
    ends = (("x", TensorProto.UINT8, (rows, depth)), ("y", TensorProto.INT32, (rows, columns)))
    x, y = (helper.make_tensor_value_info(*end) for end in ends)
    graph = helper.make_graph([helper.make_node("MatMulInteger", ["x", "w"], ["y"])], "product", [x], [y], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    listings = kernel_listings(CompileRequest(model, f"llvm{{cpu={cpu}}}", cache=False), "asm")
    return "".join(each.content.decode() for each in listings)


def inner_loop(text: str) -> tuple[int, int, int]:
    """Return packets, instructions and `vrmpy` of the basic block with the most products, the body of the loop."""
    loops = []
    for body in LABEL.split(text):
        packets = re.findall(r"{([^{}]*)", body)
        instructions = [line.strip() for packet in packets for line in packet.splitlines() if line.strip()]
        loops.append((sum("vrmpy" in each for each in instructions), len(instructions), len(packets)))
    products, instructions, packets = max(loops)
    return packets, instructions, products


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cpu", default="hexagonv67")
    cpu = parser.parse_args().cpu
    print("| rows x K x columns | packets | instructions a packet | products a packet |")
    print("| --- | ---: | ---: | ---: |")
    for size in SIZES:
        packets, instructions, products = inner_loop(assembly(*size, cpu))
        name = " x ".join(map(str, size))
        print(f"| {name} | {packets} | {instructions / packets:.2f} | {PRODUCTS * products / packets:.1f} |")


if __name__ == "__main__":
    main()
