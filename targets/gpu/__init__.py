"""Define target `gpu`, shared by all GPUs: schedules of threads and thread blocks, and host programs."""

from __future__ import annotations

from mirlo.passes.targets import Target, ThreadLimits

TARGET = Target(
    name="gpu",
    help="rules that all GPUs share, without code generation: use nvvm or spirv",
    rule_modules=(
        "mirlo.targets.gpu.legalize",
        "mirlo.targets.gpu.schedule.stages",
        "mirlo.targets.gpu.schedule.attention",
        "mirlo.targets.gpu.scatter",
        "mirlo.targets.gpu.sort",
    ),
    threads=ThreadLimits(),
)
