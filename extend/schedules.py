"""Schedules of kernels: the primitives, and the interface of rules."""

from mirlo.passes.schedule.blocks.group import BlockGroup
from mirlo.passes.schedule.kernel import Kernel, ScheduleContext
from mirlo.passes.schedule.primitives.command_intrin import command_intrin
from mirlo.passes.schedule.primitives.command_tree import (
    AffineAddress,
    CommandGuard,
    CommandLoop,
    CommandSite,
    CommandTree,
    LoopOperand,
)
from mirlo.passes.schedule.primitives.commands import (
    CommandMemory,
    CommandProgram,
    TileCommand,
    TileCommands,
    TileOperand,
)
from mirlo.passes.schedule.primitives.group_plan import PrimitivesPlan, schedule_of
from mirlo.passes.schedule.primitives.schedule import Schedule
from mirlo.passes.schedule.primitives.scheduled_prim import scheduled
from mirlo.passes.schedule.primitives.tensorize import Instruction, tensor_intrin
from mirlo.passes.schedule.primitives.tile_instruction import MatrixUnit, TileInstruction, add_tile_instruction
from mirlo.passes.schedule.primitives.tree import ScheduleError
from mirlo.passes.schedule.tuned import tuned_values
from mirlo.runtime.extenders import record_extenders
from mirlo.runtime.former_names import former_names
from mirlo.targets.llvm.schedule.part_rules import part_rule

__all__ = [
    "AffineAddress",
    "BlockGroup",
    "CommandGuard",
    "CommandLoop",
    "CommandMemory",
    "CommandProgram",
    "CommandSite",
    "CommandTree",
    "Instruction",
    "Kernel",
    "LoopOperand",
    "MatrixUnit",
    "PrimitivesPlan",
    "Schedule",
    "ScheduleContext",
    "ScheduleError",
    "TileCommand",
    "TileCommands",
    "TileInstruction",
    "TileOperand",
    "add_tile_instruction",
    "command_intrin",
    "part_rule",
    "schedule_of",
    "scheduled",
    "tensor_intrin",
    "tuned_values",
]

record_extenders(__name__)

__getattr__ = former_names(__name__, {"WordsPlan": f"{__name__}:PrimitivesPlan", "words_of": f"{__name__}:schedule_of"})
