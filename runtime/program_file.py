"""Programs in `.mirlo` files: an artifact with the loader "program", whose code is that of its modules."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from mirlo.runtime import artifact as artifacts
from mirlo.runtime.artifact import (
    Artifact,
    TensorSpec,
    checked_metadata,
    kernel_of,
    spec_of,
    split_externals,
    with_externals,
)
from mirlo.runtime.compiled_program import HOST, IF, PART, WHILE, CompiledBlock, CompiledProgram, Port, ProgramStep
from mirlo.runtime.errors import ArtifactError
from mirlo.runtime.fields import Fields
from mirlo.runtime.kinds import Kind, parse_kind
from mirlo.runtime.params import ParameterStore

LOADER = "program"
_DEEPEST = 64
_MAX_REGISTERS = 1 << 24
_BLOCKS = {PART: 0, HOST: 0, IF: 2, WHILE: 2}


def write_program(path: str | os.PathLike[str], compiled: CompiledProgram, store: ParameterStore) -> None:
    """Write a program with its parameters to one file."""
    artifacts.save(path, _as_artifact(compiled, store), store)


def _as_artifact(compiled: CompiledProgram, store: ParameterStore) -> Artifact:
    names = [spec.name for part in compiled.parts for spec in part.params] + list(compiled.constants.values())
    names += [name for part in compiled.parts for external in part.externals for name in external.stored_params]
    metadata = {
        "inputs": [_port(port) for port in compiled.inputs],
        "outputs": [_port(port) for port in compiled.outputs],
        "registers": compiled.registers,
        "constants": [{"register": register, "param": name} for register, name in compiled.constants.items()],
        "body": asdict(compiled.body),
        "parts": [artifact_row(part)[0] for part in compiled.parts],
    }
    return Artifact(
        target=compiled.target,
        loader=LOADER,
        code=b"".join(artifact_row(part)[1] for part in compiled.parts),
        entry="",
        inputs=tuple(_specs(compiled.inputs)),
        outputs=tuple(_specs(compiled.outputs)),
        params=tuple(TensorSpec(name, *store.spec(name)) for name in dict.fromkeys(names)),
        arena_bytes=sum(part.arena_bytes for part in compiled.parts),
        threads=max((part.threads for part in compiled.parts), default=1),
        metadata=metadata,
    )


def _port(port: Port) -> dict[str, str]:
    return {"name": port.name, "kind": str(port.kind)}


def _specs(ports: Sequence[Port]) -> list[TensorSpec]:
    """Return the inputs or outputs that are tensors, for listings of the file."""
    return [TensorSpec(port.name, port.kind.name, port.kind.shape or ()) for port in ports if port.kind.is_tensor]


def artifact_row(part: Artifact) -> tuple[dict[str, object], bytes]:
    """Return the description of one of several artifacts of a file, and its code."""
    externals, code = with_externals(part)
    row = {
        **(externals if part.externals else {}),
        "loader": part.loader,
        "entry": part.entry,
        "bytes": len(code),
        "inputs": [asdict(spec) for spec in part.inputs],
        "outputs": [asdict(spec) for spec in part.outputs],
        "params": [spec.name for spec in part.params],
        "arena_bytes": part.arena_bytes,
        "threads": part.threads,
        "kernels": [asdict(kernel) for kernel in part.kernels],
        "metadata": part.metadata,
    }
    return row, code


def read_program(path: str | os.PathLike[str], artifact: Artifact, store: ParameterStore) -> CompiledProgram:
    """Return the program in a file that was read."""
    fields = Fields(Path(path), "metadata", artifact.metadata, ArtifactError)
    registers = fields.count("registers")
    if registers > _MAX_REGISTERS:
        raise fields.fail("registers", f"at most {_MAX_REGISTERS} registers", registers)
    parts, start = [], 0
    for row in fields.each("parts"):
        size = row.count("bytes")
        parts.append(read_artifact(row, artifact.target, artifact.code[start : start + size], store))
        start += size
    if start != len(artifact.code):
        raise fields.fail("parts", f"parts that fill the {len(artifact.code)} bytes of code in the file", start)
    reader = _Reader(registers, parts)
    constants = {
        reader.register(row, "register"): _known(row, row.text("param"), store) for row in fields.each("constants")
    }
    compiled = CompiledProgram(
        target=artifact.target,
        inputs=tuple(Port(row.name("name"), _kind(row)) for row in fields.each("inputs")),
        outputs=tuple(Port(row.name("name"), _kind(row)) for row in fields.each("outputs")),
        body=reader.block(Fields(Path(path), "metadata.body", fields.mapping("body"), ArtifactError)),
        registers=registers,
        parts=tuple(parts),
        constants=constants,
    )
    if (len(compiled.inputs), len(compiled.outputs)) != (len(compiled.body.arguments), len(compiled.body.results)):
        raise fields.fail("body", "an argument per input and a result per output", len(compiled.body.arguments))
    return compiled


def _known(row: Fields, name: str, store: ParameterStore) -> str:
    if name not in store:
        raise row.fail(f"{row.place}.param", "the name of a tensor in the file", name)
    return name


def _kind(row: Fields) -> Kind:
    return _parsed_kind(row, "kind", row.name("kind"))


def _parsed_kind(row: Fields, name: str, text: str) -> Kind:
    try:
        return parse_kind(text)
    except (ValueError, RecursionError):
        raise row.fail(f"{row.place}.{name}", "a kind of a value", text) from None


def read_artifact(row: Fields, target: str, code: bytes, store: ParameterStore) -> Artifact:
    """Return the artifact written by `artifact_row`."""
    own, externals = split_externals(row, code, store)
    return Artifact(
        target=target,
        loader=row.name("loader"),
        code=own,
        entry=row.name("entry"),
        inputs=tuple(map(spec_of, row.each("inputs"))),
        outputs=tuple(map(spec_of, row.each("outputs"))),
        params=tuple(TensorSpec(name, *store.spec(_known(row, name, store))) for name in row.texts("params")),
        arena_bytes=row.count("arena_bytes"),
        kernels=tuple(map(kernel_of, row.each("kernels"))),
        threads=row.threads("threads"),
        metadata=checked_metadata(row),
        externals=externals,
    )


class _Reader:
    """A reader of blocks, which checks that registers, modules and blocks exist."""

    def __init__(self, registers: int, parts: Sequence[Artifact]) -> None:
        self.registers = registers
        self.parts = parts

    def register(self, row: Fields, name: str) -> int:
        result = row.count(name)
        if result >= self.registers:
            raise row.fail(f"{row.place}.{name}", f"a register below {self.registers}", result)
        return result

    def block(self, row: Fields, depth: int = 0) -> CompiledBlock:
        if depth > _DEEPEST:
            raise row.fail(f"{row.place}.steps", f"blocks nested at most {_DEEPEST} deep", depth)
        steps = tuple(self._step(step, depth) for step in row.each("steps"))
        return CompiledBlock(self._list(row, "arguments"), steps, self._list(row, "results"))

    def _list(self, row: Fields, name: str) -> tuple[int, ...]:
        result = row.counts(name)
        for number in result:
            if number >= self.registers:
                raise row.fail(f"{row.place}.{name}", f"registers below {self.registers}", number)
        return result

    def _step(self, row: Fields, depth: int) -> ProgramStep:
        kind, part = row.text("kind"), row.count("part")
        blocks = tuple(self.block(block, depth + 1) for block in row.each("blocks"))
        if kind not in _BLOCKS or len(blocks) != _BLOCKS[kind]:
            raise row.fail(f"{row.place}.kind", f"one of {', '.join(_BLOCKS)} with its blocks", kind)
        if kind == PART and part >= len(self.parts):
            raise row.fail(f"{row.place}.part", f"a part below {len(self.parts)}", part)
        kinds = row.texts("kinds")
        for text in kinds:
            if text:
                _parsed_kind(row, "kinds", text)
        step = ProgramStep(
            kind, self._list(row, "inputs"), self._list(row, "outputs"), part, row.name("function"),
            row.json_object("options"), kinds, row.text("source"), blocks,
        )  # fmt: skip
        problem = self._mismatch(step)
        if problem is not None:
            raise row.fail(row.place, problem, [len(step.inputs), len(step.outputs)])
        return step

    def _mismatch(self, step: ProgramStep) -> str | None:
        """Return the requirement that a step's registers violate; None if they fit."""
        takes, gives = len(step.inputs), len(step.outputs)
        if step.kind == PART:
            part = self.parts[step.part]
            wanted = len(part.inputs), len(part.outputs)
            return None if (takes, gives) == wanted else f"{wanted[0]} inputs and {wanted[1]} outputs, as its part has"
        if step.kind == HOST:
            return None if gives == len(step.kinds) else f"a result for each of its {len(step.kinds)} kinds"
        if step.kind == IF:
            fits = takes and all(len(block.results) == gives for block in step.blocks)
            return None if fits else "a condition, and as many results as each branch has"
        before, after = step.blocks
        fits = len(before.arguments) == takes == len(after.results) and len(before.results) == 1 + gives == 1 + len(
            after.arguments
        )
        return None if fits else "as many registers as its blocks carry"
