"""ONNX's standard interface of backends, which its own test suite runs against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import helper
from onnx.backend.base import Backend, BackendRep, Device, DeviceType, namedtupledict

from mirlo.driver.compile import compile as compile_model
from mirlo.frontends.onnx.graph import ValueDef
from mirlo.frontends.onnx.inputs import graph_inputs
from mirlo.frontends.onnx.model import load
from mirlo.runtime.errors import InputError, MirloError

if TYPE_CHECKING:
    from mirlo.runtime.executable import Executable

Shapes = tuple[tuple[int, ...], ...]

Inputs = Mapping[str, np.ndarray] | Sequence[np.ndarray] | np.ndarray
"""Arrays by name, in the order of the inputs, or the only one."""
OutputsInfo = Sequence[tuple[np.dtype, tuple[int, ...]]]


class MirloBackendRep(BackendRep):  # type: ignore[misc]
    """A model that is ready to run.

    A model whose inputs have dims without a size is compiled when it is run, once for each set of shapes.
    """

    def __init__(self, model: onnx.ModelProto, threads: int = 1, verify: bool = False) -> None:
        self._model = load(model)
        self._threads, self._verify = threads, verify
        graph = self._model.content.graph
        inputs = graph_inputs(graph)
        self._names = [value.name for value in inputs]
        self._outputs = [value.name for value in graph.outputs]
        self._compiled: dict[Shapes | None, Executable] = {}
        if _can_be_compiled_now(inputs):
            self._compiled[None] = compile_model(self._model, threads=threads, verify=verify)

    def run(self, inputs: Inputs, **options: object) -> tuple[np.ndarray, ...]:
        """Return the outputs, by position and by name; inputs are a list of arrays, a dict by name, or one array."""
        _refuse_options(options)
        arrays = self._arrays(inputs)
        executable = self._executable(arrays)
        results = executable.run(dict(zip(self._names, arrays, strict=True)))
        values = [results[name] for name in self._outputs]
        outputs: tuple[np.ndarray, ...] = namedtupledict("Outputs", self._outputs)(*values)
        return outputs

    def _arrays(self, inputs: Inputs) -> list[np.ndarray]:
        if isinstance(inputs, Mapping):
            missing = [name for name in self._names if name not in inputs]
            unknown = [name for name in inputs if name not in self._names]
            if missing or unknown:
                raise InputError(
                    f"the model takes {', '.join(self._names) or 'no inputs'}; "
                    f"missing: {', '.join(missing) or 'none'}, unknown: {', '.join(unknown) or 'none'}"
                )
            return [inputs[name] for name in self._names]
        arrays = [inputs] if isinstance(inputs, np.ndarray) else list(inputs)
        if len(arrays) != len(self._names):
            raise InputError(f"the model takes {len(self._names)} inputs ({', '.join(self._names)}), got {len(arrays)}")
        return arrays

    def _executable(self, arrays: Sequence[np.ndarray]) -> Executable:
        if None in self._compiled:
            return self._compiled[None]
        shapes = tuple(tuple(np.shape(array)) for array in arrays)
        if shapes not in self._compiled:
            input_shapes = dict(zip(self._names, shapes, strict=True))
            self._compiled[shapes] = compile_model(
                self._model, threads=self._threads, shapes=input_shapes, verify=self._verify
            )
        return self._compiled[shapes]


class MirloBackend(Backend):  # type: ignore[misc]
    """The backend, for `onnx.backend.test.BackendTest` and other users of this interface."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **options: Any) -> MirloBackendRep:
        """Compile a model. The options are `threads` and `verify`; the tolerances of a test are ignored."""
        _require_device(device)
        threads, verify = options.pop("threads", 1), options.pop("verify", False)
        _refuse_options(options)
        return MirloBackendRep(model, threads, verify)

    @classmethod
    def run_model(
        cls, model: onnx.ModelProto, inputs: Inputs, device: str = "CPU", **options: Any
    ) -> tuple[np.ndarray, ...]:
        """Compile a model and run it once."""
        return cls.prepare(model, device, **options).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: np.ndarray,
        device: str = "CPU",
        outputs_info: OutputsInfo | None = None,
        **options: Any,
    ) -> tuple[np.ndarray, ...]:
        """Run one operator; `opset_version` is that of its domain, else the newest."""
        version = options.pop("opset_version", None)
        model = _model_of(node, inputs, outputs_info, version)
        return cls.prepare(model, device, **options).run(inputs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Return whether models run on a device: only the CPU."""
        try:
            return bool(Device(device).type == DeviceType.CPU)
        except (AttributeError, ValueError):
            return False


def _can_be_compiled_now(inputs: Sequence[ValueDef]) -> bool:
    """Return whether a model can be compiled without shapes: they are known, or some inputs are no tensors."""
    is_known = all(value.type.static_dims is not None for value in inputs)
    return is_known or any(value.type.case != "tensor" for value in inputs)


def _require_device(device: str) -> None:
    if not MirloBackend.supports_device(device):
        raise MirloError(f"device '{device}' is not supported: 'CPU' is")


def _refuse_options(options: Mapping[str, object]) -> None:
    unknown = [name for name in options if name not in ("rtol", "atol")]
    if unknown:
        raise TypeError(f"unknown option '{unknown[0]}'")


def _model_of(
    node: onnx.NodeProto, inputs: Inputs, outputs_info: OutputsInfo | None, version: int | None
) -> onnx.ModelProto:
    """Return a model of one node, with the types of its inputs."""
    names = list(dict.fromkeys(name for name in node.input if name))
    arrays = [inputs[name] for name in names] if isinstance(inputs, Mapping) else list(inputs)
    if len(arrays) != len(names):
        raise InputError(f"{node.op_type} is given {len(arrays)} arrays for its inputs {', '.join(names) or 'none'}")
    input_infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.asarray(array).dtype), np.shape(array))
        for name, array in zip(names, arrays, strict=True)
    ]
    wanted = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    for value, (dtype, shape) in zip(wanted, outputs_info or (), strict=False):
        element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        value.CopyFrom(helper.make_tensor_value_info(value.name, element, shape))
    opsets = {"": onnx.defs.onnx_opset_version()}
    opsets[node.domain] = version or opsets.get(node.domain, 1)
    imports = [helper.make_opsetid(domain, number) for domain, number in opsets.items()]
    return helper.make_model(helper.make_graph([node], "node", input_infos, wanted), opset_imports=imports)


prepare = MirloBackend.prepare
run_model = MirloBackend.run_model
run_node = MirloBackend.run_node
supports_device = MirloBackend.supports_device
