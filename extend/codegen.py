"""External code generators: patterns, regions, artifacts; command queues of accelerators."""

from mirlo.dialects.context import graph_operations
from mirlo.dialects.core import dims
from mirlo.dialects.core.dims import Dim, SymbolicDim
from mirlo.dialects.core.dtypes import DType, dtype
from mirlo.dialects.core.installed import register_in
from mirlo.dialects.core.traits import OnnxName, Trait
from mirlo.dialects.relax.infer import kernel_permutation
from mirlo.dialects.relax.reduce import reductions_of_onnx
from mirlo.passes.byoc.codegen import (
    Artifact,
    CodeGenerator,
    DeclinedRegions,
    ExternalFunction,
    ExternalModule,
    ExternalNode,
    ExternalValue,
    Tunable,
)
from mirlo.passes.byoc.codegen import option as codegen_option
from mirlo.passes.byoc.command_loops import RolledCommand, RolledLoop, roll_commands
from mirlo.passes.byoc.command_queues import (
    Banks,
    Hazard,
    MemorySpan,
    QueuedCommand,
    QueueError,
    QueueModel,
    QueueStep,
    QueueToken,
    Semaphore,
    check_signals,
    synchronize,
)
from mirlo.passes.byoc.connected import several
from mirlo.passes.byoc.graph import BlockNode, BlockValue
from mirlo.passes.byoc.helpers import (
    conv_bias_activation,
    functions_of_one_operand,
    matmul_bias_activation,
    repeat,
    with_activation,
)
from mirlo.passes.byoc.operators import is_const, is_op, is_var, maybe, same_shape_as, wildcard
from mirlo.passes.byoc.pattern import MatchCheck, Pattern, PatternTuple
from mirlo.passes.byoc.read_external import node_of
from mirlo.passes.byoc.rewrite import rewrite, rewriter
from mirlo.passes.byoc.scratchpad import Scratchpad, ScratchpadFull, ScratchpadTensor
from mirlo.passes.byoc.search import Match
from mirlo.passes.byoc.tables import pattern_table
from mirlo.passes.byoc.tir_patterns import contraction, is_call_tir
from mirlo.passes.byoc.tir_patterns import elementwise as elementwise_prim
from mirlo.passes.byoc.view import Step
from mirlo.passes.figures import Figures
from mirlo.passes.graph.rewrite import kind_of
from mirlo.passes.rules import Decline, decline
from mirlo.runtime.extenders import record_extenders
from mirlo.targets.c.loops import CLoopsError, c_function
from mirlo.targets.c.native import define_c_functions
from mirlo.targets.c.processor import CProcessor

__all__ = [
    "Artifact",
    "Banks",
    "BlockNode",
    "BlockValue",
    "CLoopsError",
    "CProcessor",
    "CodeGenerator",
    "DType",
    "Decline",
    "DeclinedRegions",
    "Dim",
    "ExternalFunction",
    "ExternalModule",
    "ExternalNode",
    "ExternalValue",
    "Figures",
    "Hazard",
    "Match",
    "MatchCheck",
    "MemorySpan",
    "OnnxName",
    "Pattern",
    "PatternTuple",
    "QueueError",
    "QueueModel",
    "QueueStep",
    "QueueToken",
    "QueuedCommand",
    "RolledCommand",
    "RolledLoop",
    "Scratchpad",
    "ScratchpadFull",
    "ScratchpadTensor",
    "Semaphore",
    "Step",
    "SymbolicDim",
    "Trait",
    "Tunable",
    "c_function",
    "check_signals",
    "codegen_option",
    "contraction",
    "conv_bias_activation",
    "decline",
    "define_c_functions",
    "dims",
    "dtype",
    "elementwise_prim",
    "functions_of_one_operand",
    "graph_operations",
    "is_call_tir",
    "is_const",
    "is_op",
    "is_var",
    "kernel_permutation",
    "kind_of",
    "matmul_bias_activation",
    "maybe",
    "node_of",
    "pattern_table",
    "reductions_of_onnx",
    "register_in",
    "repeat",
    "rewrite",
    "rewriter",
    "roll_commands",
    "same_shape_as",
    "several",
    "synchronize",
    "wildcard",
    "with_activation",
]

record_extenders(__name__)
