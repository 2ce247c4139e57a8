"""The pipeline of whole models, for this machine or a processor without an operating system."""

from __future__ import annotations

from mirlo.passes.byoc.codegen import generator_of
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.targets import CompileOptions, find_target
from mirlo.targets.c.generator import CGenerator
from mirlo.targets.c.pipeline import PASSES
from mirlo.targets.c.processor import CProcessor, find_processor


def compile_pipeline(options: CompileOptions | None = None) -> str:
    """Return the pipeline from relax to buffers, the input of the printer."""
    text = f"builtin.module({','.join(PASSES)})"
    processor = processor_of(options) if options is not None else None
    if processor is None:
        return text
    pipeline = Pipeline(text).for_target(processor.name)
    for name in ("count-products", *processor.passes):
        pipeline = pipeline.insert_before("schedule", name)
    return str(pipeline)


def processor_of(options: CompileOptions) -> CProcessor | None:
    """Return the processor that a model is compiled for: the target itself, or the option `cpu` of target `c`."""
    target = find_target(options.target)
    if isinstance(target, CProcessor):
        return target
    if not options.target_options:
        return None
    chosen = generator_of("c", options.target_options)
    assert isinstance(chosen, CGenerator)
    return find_processor(chosen.cpu) if chosen.cpu else None
