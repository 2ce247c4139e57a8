"""Names of functions in a planned module, for code generators that need nothing else of the planner."""

from __future__ import annotations

SIZES_SUFFIX = "_sizes"
"""Suffix of the function that computes the sizes of a function's results and arena."""
ALLOCATE, CHECK = "mirlo_allocate", "mirlo_check"
"""The functions that allocate memory of data-dependent sizes, and that end a call for an invalid size."""
GROW, SLOT = "mirlo_grow", "mirlo_slot"
"""The functions that return the memory of a slot: with room for that many bytes, and as it is."""
POLL = "mirlo_poll"
"""The function that loops of unknown length ask after each iteration, whether the call is to end."""
TICK = "mirlo_tick"
"""The function that records the CPU's tick counter in a slot of the profile, if there is a profile."""
ALIAS = "relax.alias"
"""Attribute of an output: the input whose memory it may have."""
FORK = "tir.fork"
"""Attribute of a function without body that runs a region on several threads."""
