"""A dialect: a namespace, its operation classes, and how they are loaded into a context."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from mirlo.dialects import bindings, wheel
from mirlo.dialects.bindings import ir

if TYPE_CHECKING:
    from mirlo.dialects.core.op import DialectOp


class Dialect:
    """The operations of one namespace. `load` registers them in the current context."""

    def __init__(self, namespace: str, attributes: tuple[str, ...] = (), types: tuple[str, ...] = ()):
        self.namespace = namespace
        self.attributes = attributes
        self.types = types
        """Names of types without parameters."""
        self.operations: dict[str, type[DialectOp]] = {}
        self.additions = 0
        """How many operations were added, those included that replaced one."""
        self._text = (0, "")
        self._definition: tuple[str, str | bytes] = ("", "")
        """The text of the module in IRDL that was loaded last, and what the next context parses."""
        self._binding_class = type(namespace, (), {"DIALECT_NAMESPACE": namespace})
        bindings.claim_dialect_module(namespace)

    def add(self, op_class: type[DialectOp]) -> None:
        name = op_class.OPERATION_NAME
        known = self.operations.get(name)
        definitions = [(c.__module__, c.__qualname__) for c in (known, op_class) if c is not None]
        if known is not None and definitions[0] != definitions[1]:
            raise ValueError(f"operation '{name}' is defined twice: in {known.__module__} and in {op_class.__module__}")
        self.operations[name] = op_class
        self.additions += 1
        self._text = (0, "")  # a class that is defined again, in a notebook say, replaces the former one

    def irdl_text(self) -> str:
        """Return the definition in IRDL, rebuilt only after operations were added."""
        if self._text[0] != len(self.operations):
            self._text = (len(self.operations), self._irdl_text())
        return self._text[1]

    def _irdl_text(self) -> str:
        attributes = "\n".join(
            f"irdl.attribute @{name} {{ %{name} = irdl.any\n irdl.parameters(value: %{name}) }}"
            for name in self.attributes
        )
        types = "\n".join(f"irdl.type @{name} {{ }}" for name in self.types)
        operations = "\n".join(op.irdl_text() for op in self.operations.values())
        return f"irdl.dialect @{self.namespace} {{\n{attributes}\n{types}\n{operations}\n}}"

    def load(self) -> None:
        if wheel.is_dialect_loaded(ir.Context.current, self.namespace, self.operations):
            return
        with ir.Location.unknown():
            bindings.load_irdl(self._irdl_module())
        for name, op in self.operations.items():
            if op.PURE:
                _NoEffects.attach(name)
                _Speculatable.attach(name)
            if op.TERMINATOR:
                ir.IsTerminatorTrait.attach(name)
            if op.ISOLATED:
                wheel.attach_isolation(ir, name)
            if op.NO_TERMINATOR:
                ir.NoTerminatorTrait.attach(name)
            ir.DynamicOpTrait.attach(name, op)
            if _CLASSES.get(name) is not op:
                bindings._cext.register_operation(self._binding_class, replace=True)(op)
                _CLASSES[name] = op

    def _irdl_module(self) -> ir.Module:
        """Return the definition as a module of the current context.

        Most processes load it once, from text. The second call writes bytecode, which later calls load in 0.6 of that.
        """
        text = self.irdl_text()
        if self._definition[0] != text:
            self._definition = text, text
            return ir.Module.parse(text)
        module = ir.Module.parse(self._definition[1])
        if isinstance(self._definition[1], str):
            bytecode = io.BytesIO()
            module.operation.write_bytecode(bytecode)
            self._definition = text, bytecode.getvalue()
        return module


_CLASSES: dict[str, type[DialectOp]] = {}
"""The classes that the bindings know for operations, in all contexts."""


class _NoEffects(ir.MemoryEffectsOpInterface):
    @staticmethod
    def get_effects(op: ir.OpView, effects: ir.MemoryEffectInstancesList) -> None:
        """Report no effects: the operation is pure."""


class _Speculatable(ir.ConditionallySpeculatable):
    @staticmethod
    def get_speculatability(op: ir.OpView) -> ir.Speculatability:
        return ir.Speculatability.Speculatable
