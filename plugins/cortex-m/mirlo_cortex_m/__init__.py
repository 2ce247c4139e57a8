"""Processors of target `c`: Arm's Cortex-M, of which some multiply several int8 in one instruction."""

from mirlo.extend import CProcessor

FLAGS = {
    "cortex-m0plus": ("-mcpu=cortex-m0plus", "-mthumb"),
    "cortex-m4": ("-mcpu=cortex-m4", "-mthumb", "-mfpu=fpv4-sp-d16", "-mfloat-abi=hard"),
    "cortex-m7": ("-mcpu=cortex-m7", "-mthumb", "-mfpu=fpv5-sp-d16", "-mfloat-abi=hard"),
    "cortex-m33": ("-mcpu=cortex-m33", "-mthumb", "-mfpu=fpv5-sp-d16", "-mfloat-abi=hard"),
    "cortex-m55": ("-mcpu=cortex-m55", "-mthumb", "-mfloat-abi=hard"),
}
"""The flags of GCC and Clang for each processor."""

FAMILY = CProcessor("cortex-m", "Arm Cortex-M")
M0PLUS = CProcessor("cortex-m0plus", "Arm Cortex-M0+", parent="cortex-m", flags=FLAGS["cortex-m0plus"])
M4 = CProcessor("cortex-m4", "Arm Cortex-M4", parent="cortex-m", flags=FLAGS["cortex-m4"])
M7 = CProcessor("cortex-m7", "Arm Cortex-M7", parent="cortex-m", flags=FLAGS["cortex-m7"])
M33 = CProcessor("cortex-m33", "Arm Cortex-M33", parent="cortex-m", flags=FLAGS["cortex-m33"])
M55 = CProcessor("cortex-m55", "Arm Cortex-M55", parent="cortex-m", flags=FLAGS["cortex-m55"])
