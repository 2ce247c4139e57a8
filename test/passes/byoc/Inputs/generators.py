"""Code generators for tests: one in numpy that works, and some that fail in different ways."""

import ctypes
import json
from dataclasses import dataclass

import numpy as np

from mirlo.extend.codegen import Artifact, CodeGenerator, DeclinedRegions, is_op
from mirlo.extend.rules import decline
from mirlo.extend.runtime import ExternalFunctions, register_external_loader
from mirlo.extend.target import Target, option, register_target

NUMPY = {
    "relax.add": np.add,
    "relax.multiply": np.multiply,
    "relax.relu": lambda x: np.maximum(x, 0),
    "relax.matmul": np.matmul,
}
RELEASED = []


@dataclass(frozen=True)
class Toy(CodeGenerator):
    """Steps as JSON, which the loader interprets."""

    name = "toy"
    scale: float = option(1.0, "what results are multiplied by")

    def codegen(self, module):
        programs = {}
        for function in module.functions:
            nodes = [[n.op, [v.constant or v.name for v in n.inputs], n.output.name] for n in function.nodes]
            programs[function.name] = [[v.name for v in function.inputs], nodes, [v.name for v in function.outputs]]
        data = json.dumps(programs).encode()
        return Artifact("toy", module.names, data, tuple(module.constants), {"scale": self.scale})


def load(artifact, context):
    def function(name):
        inputs, nodes, outputs = json.loads(artifact.data)[name]

        def call(*tensors):
            values = {**context.params, **dict(zip(inputs, tensors, strict=False))}
            for op, arguments, output in nodes:
                values[output] = NUMPY[op](*(values[a] for a in arguments))
            for output, tensor in zip(outputs, tensors[len(inputs) :], strict=True):
                tensor[...] = values[output] * artifact.metadata["scale"]

        return call

    functions = {name: function(name) for name in artifact.functions}
    return ExternalFunctions(functions, release=lambda: RELEASED.append(artifact.functions))


register_external_loader("toy", load)
register_target(Target("toy", "numpy, for tests", codegen=Toy))


def failing(target_name, body, apart=False):
    class Failing(CodeGenerator):
        name = target_name
        isolated = apart

        def codegen(self, module):
            return body(module)

    register_target(Target(target_name, "fails", codegen=dataclass(frozen=True)(Failing)))


def _raise(module):
    raise ValueError("no such instruction")


failing("raises", _raise)
failing("raises-apart", _raise, apart=True)
failing("garbage", lambda module: 42)
failing("forgets", lambda module: Artifact("toy", ()))
failing("invents", lambda module: Artifact("toy", module.names, params=("w9",)))
failing("crashes", lambda module: ctypes.string_at(0), apart=True)
failing("crashes-here", lambda module: ctypes.string_at(0))
failing("exits", lambda module: __import__("os")._exit(3), apart=True)
failing("works-apart", Toy().codegen, apart=True)


@dataclass(frozen=True)
class Apart(Toy):
    """Works in a process of its own, and takes it down for weights that it does not like."""

    name = "apart"
    isolated = True

    def codegen(self, module):
        if any(array.max() > 1000 for array in module.constants.values()):
            ctypes.string_at(0)
        return super().codegen(module)


register_target(Target("apart", "in a process of its own", codegen=Apart))


def picky(target_name, apart):
    @dataclass(frozen=True)
    class Picky(Toy):
        """Finds regions too large when it compiles them."""

        name = target_name
        isolated = apart
        compiled_to_place = True
        most: int = option(64, "most elements of a result")

        def patterns(self):
            return [("relu", is_op("relax.relu")(...)), ("matmul", is_op("relax.matmul")(...))]

        def codegen(self, module):
            sizes = {f.name: max(node.output.type.elements for node in f.nodes) for f in module.functions}
            large = {name: decline("too many elements", elements=n) for name, n in sizes.items() if n > self.most}
            return DeclinedRegions(large) if large else super().codegen(module)

        def times(self, artifact):
            return dict.fromkeys(artifact.functions, 12.5)

    register_target(Target(target_name, "declines when it compiles", codegen=Picky))


picky("picky", apart=False)
picky("picky-apart", apart=True)
failing("declines-nothing", lambda module: DeclinedRegions({}))
failing("declines-others", lambda module: DeclinedRegions({"f": decline("no")}))
