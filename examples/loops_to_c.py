"""A code generator that is given loops: prim functions become C, whatever operator they come from.

mirlo run model.onnx --plugin examples/loops_to_c.py --targets looper,llvm
python examples/loops_to_c.py model.onnx
"""

import sys
from dataclasses import dataclass

import mirlo
from mirlo.extend.codegen import CodeGenerator, c_function, contraction, elementwise_prim, wildcard
from mirlo.extend.runtime import NativeCode
from mirlo.extend.target import Target, register_target

HEAD = """#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include "mirlo.h"
#define DATA(t) (void *)((char *)(t)->data + (t)->byte_offset)
"""


@dataclass(frozen=True)
class Looper(CodeGenerator):
    """Products of matrices in f32 with what follows them element by element."""

    name = "looper"

    def patterns(self):
        product = contraction(wildcard(), wildcard(), axes="mk,kn->mn", dtype="f32")
        return [("product_activation", elementwise_prim(product)), ("product", product)]

    def codegen(self, module):
        prims = {node.prim.name: node.prim for function in module.functions for node in function.nodes}
        texts = {name: c_function(prim, f"looper_{name}") for name, prim in prims.items()}
        constants = tuple(module.constants)
        source = [HEAD, *(f"static {text.text}" for text in texts.values())]
        source += [region(function, texts, constants) for function in module.functions]
        return NativeCode(sources={"loops.c": "\n".join(source)}, params=constants)


def region(function, texts, constants):
    """Return the C function of a region: it calls those of its prim functions."""
    ends = [*function.inputs, *function.outputs]
    pointers = {value: f"DATA(tensors[{place}])" for place, value in enumerate(ends)}
    pointers |= {value: f"(void *)region->weights[{constants.index(value.constant)}]" for value in function.constants}
    sizes, held, lines = {}, [], []
    for number, value in enumerate(function.inputs):
        for axis, dim in enumerate(value.shape):
            sizes.setdefault(str(dim), f"tensors[{number}]->shape[{axis}]")
    for node in function.nodes:
        text = texts[node.prim.name]
        assert text.workspace == 0, "these kernels need no scratch memory"
        for value in node.outputs:
            if value not in pointers:
                pointers[value] = f"t{len(held)}"
                count = " * ".join(str(d) if isinstance(d, int) else sizes[str(d)] for d in value.shape)
                lines.append(f"void *t{len(held)} = malloc({count} * {value.type.dtype.bytes});")
                held.append(pointers[value])
        arguments = [pointers[value] for value in (*node.inputs, *node.outputs)]
        arguments += [sizes[p.symbol] for p in text.parameters if p.kind == "size"]
        lines.append(f"{text.name}({', '.join(arguments)});  /* {node.name} */")
    lines += [f"free({name});" for name in held]
    body = "\n  ".join([*lines, "return 0;"])
    return f"int {function.name}(const mirlo_region *region, DLTensor **tensors, int64_t count) {{\n  {body}\n}}\n"


register_target(Target("looper", "loops as C", codegen=Looper))
if __name__ == "__main__":
    executable = mirlo.compile(sys.argv[1], ["looper", "llvm"])
    print(executable.profile(*executable.random_inputs().values(), repeats=3).table(limit=5))
