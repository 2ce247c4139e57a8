"""Target `gpu`: what all GPUs share: schedules of threads and blocks, programs of the host."""

from __future__ import annotations

from mirlo.passes.targets import Target

TARGET = Target(
    name="gpu",
    help="rules that all GPUs share; code is made by nvvm and spirv",
    rule_modules=(
        "mirlo.targets.gpu.legalize",
        "mirlo.targets.gpu.schedule.stages",
        "mirlo.targets.gpu.schedule.attention",
        "mirlo.targets.gpu.sort",
    ),
)
