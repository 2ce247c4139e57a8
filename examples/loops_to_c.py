"""A code generator that is given loops: prim functions become C, whatever operator they come from.

mirlo run model.onnx --plugin examples/loops_to_c.py --targets looper,llvm
python examples/loops_to_c.py model.onnx
"""

import sys
from dataclasses import dataclass

import mirlo
from mirlo import extend
from mirlo.extend import Artifact, CodeGenerator, Target, c_function, contraction, elementwise_prim, wildcard
from mirlo.runtime.loaders import llvm_host
from mirlo.runtime.system import LIBRARY_SUFFIX
from mirlo.targets.c.compiler import compile_shared, find_compiler
from mirlo.targets.c.loader import load

HEAD = """#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
typedef struct { void *data; int64_t device; int32_t ndim; uint32_t dtype; int64_t *shape, *strides; uint64_t offset; }
  DLTensor;
#define DATA(t) (void *)((char *)(t)->data + (t)->offset)
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
        source = [HEAD, *(text.text for text in texts.values())]
        source += [region(function, texts, constants) for function in module.functions]
        data = compile_shared("\n".join(source), find_compiler())
        metadata = {"symbols": {name: f"region_{name}" for name in module.names}, "suffix": LIBRARY_SUFFIX}
        triple = llvm_host()["triple"]
        return Artifact("looper", module.names, data, constants, {**metadata, "triple": triple})


def region(function, texts, constants):
    """Return the C function of a region: it calls those of its prim functions."""
    ends = [*function.inputs, *function.outputs]
    pointers = {value: f"DATA(tensors[{place}])" for place, value in enumerate(ends)}
    pointers |= {value: f"params[{constants.index(value.constant)}]" for value in function.constants}
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
    return f"int32_t region_{function.name}(void **params, DLTensor **tensors, int64_t count) {{\n  {body}\n}}\n"


extend.register_external_loader("looper", load)
extend.register_target(Target("looper", "loops as C", codegen=Looper))
if __name__ == "__main__":
    executable = mirlo.compile(sys.argv[1], ["looper", "llvm"])
    print(executable.profile(*executable.random_inputs().values(), repeats=3).table(limit=5))
