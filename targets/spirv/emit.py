"""Emission of an artifact from a planned module: SPIR-V binaries and the host program."""

from __future__ import annotations

from typing import Any

from mirlo.runtime.artifact import Artifact
from mirlo.targets.gpu.kernels import pack
from mirlo.targets.gpu.reader import read_program
from mirlo.targets.planned import find_main, kernel_rows, run_time_facts, signature_of
from mirlo.targets.spirv.binary import to_binaries
from mirlo.targets.spirv.large import pass_parts, split_large


def emit(module: Any) -> Artifact:
    """Make the artifact of a module that went through the target's pipeline. The module is consumed."""
    main = find_main(module)
    signature = signature_of(main)
    rows = kernel_rows(main, module)
    program, facts = read_program(module, main), run_time_facts(main, module)
    pass_parts(program, split_large(module))
    code, table = pack(to_binaries(module), program.constants)
    return Artifact(
        target="spirv", loader="vulkan", code=code, entry="main", inputs=signature["inputs"],
        outputs=signature["outputs"], params=signature["params"], arena_bytes=0, kernels=tuple(rows),
        metadata={"program": program.as_json(), **facts, **table},
    )  # fmt: skip
