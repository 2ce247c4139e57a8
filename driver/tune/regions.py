"""Tuning of regions: code generators declare the choices for their parts, and measure them themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.driver.models import open_model
from mirlo.passes.byoc.codegen import CodeGenerator, Tunable
from mirlo.passes.byoc.generator_errors import Crash, describe_error
from mirlo.passes.byoc.guard import guarded
from mirlo.passes.byoc.read_external import EXTERNAL, external_modules, read_external
from mirlo.passes.byoc.target_list import Targets
from mirlo.passes.byoc.tuned_regions import region_prefix
from mirlo.passes.byoc.view import key_hash
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.targets import TargetError
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    import onnx


@dataclass(frozen=True)
class RegionTask:
    """A part of a region to tune."""

    key: str
    """The key in the database."""
    part: Tunable
    calls: int
    generator: CodeGenerator

    def microseconds(self, values: Mapping[str, int]) -> float:
        """Return the time with choices; raise an error that names the code generator where it fails."""
        try:
            if self.generator.guarded:
                return guarded(lambda: float(self.part.microseconds(values)))
            return float(self.part.microseconds(values))
        except Crash as crash:
            problem = str(crash)
        except Exception as error:
            problem = describe_error(error)
        chosen = ", ".join(f"{name}={value}" for name, value in values.items()) or "its own choices"
        raise TargetError(
            f"the code generator of target '{self.generator.name}' {problem} as it measured '{self.part.name}' with "
            f"{chosen}"
        )


def has_tunables(targets: Targets) -> bool:
    """Return whether a code generator among these targets declares choices."""
    return any(type(target.generator).tunables is not CodeGenerator.tunables for target in targets.generators)


def region_tasks(
    model: onnx.ModelProto, targets: Targets, shapes: Mapping[str, Sequence[int | str] | None] | None
) -> list[RegionTask]:
    """Return the parts of a model's regions that may be tuned, each once."""
    opened = open_model(model, shapes)
    module, session = opened.module, opened.session
    generators = {target.name: target.generator for target in targets.generators}
    with module.context, ir.Location.unknown():
        Pipeline(targets.placing() if targets.of_operators else targets.placing_loops()).run(module, session)
        parts: dict[str, tuple[Tunable, CodeGenerator]] = {}
        calls: dict[str, int] = {}
        for nested in external_modules(module):
            generator = generators[ir.StringAttr(nested.attributes[EXTERNAL]).value]
            for part in generator.tunables(read_external(nested, session)):
                key = region_prefix(generator) + key_hash(part.key)
                parts.setdefault(key, (part, generator))
                calls[key] = calls.get(key, 0) + 1
    return [RegionTask(key, part, calls[key], generator) for key, (part, generator) in parts.items()]
