"""Arm's Cortex-M processors for target `c`; some multiply several int8 in one instruction."""

from functools import partial
from pathlib import Path

from mirlo.extend.codegen import CProcessor

FLAGS = {
    "cortex-m0plus": ("-mcpu=cortex-m0plus", "-mthumb"),
    "cortex-m4": ("-mcpu=cortex-m4", "-mthumb", "-mfpu=fpv4-sp-d16", "-mfloat-abi=hard"),
    "cortex-m7": ("-mcpu=cortex-m7", "-mthumb", "-mfpu=fpv5-sp-d16", "-mfloat-abi=hard"),
    "cortex-m33": ("-mcpu=cortex-m33", "-mthumb", "-mfpu=fpv5-sp-d16", "-mfloat-abi=hard"),
    "cortex-m55": ("-mcpu=cortex-m55", "-mthumb", "-mfloat-abi=hard"),
}
"""The flags of GCC and Clang for each processor."""

_processor = partial(
    CProcessor,
    prelude=Path(__file__).with_name("prelude.h").read_text(encoding="utf-8"),
    functions=("mirlo_dot", "mirlo_taps"),
    passes=("fuse-pads", "reductions-innermost", "remove-dead"),
)
FAMILY = _processor("cortex-m", "Arm Cortex-M", rule_modules=("mirlo_cortex_m.rules",))
M0PLUS, M4, M7, M33, M55 = (
    _processor(name, f"Arm {name.title()}", parent="cortex-m", flags=flags) for name, flags in FLAGS.items()
)
