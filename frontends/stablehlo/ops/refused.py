"""Operations that are not supported, and why."""

from __future__ import annotations

from mirlo.frontends.stablehlo.registry import REFUSED

_COLLECTIVE = "exchanges data between devices: export the program for one device"
_RANDOM = (
    "makes random numbers whose values StableHLO does not define: use rng_bit_generator, or JAX's default generator, "
    "threefry, which is made of ordinary operations"
)
_HOST = "communicates with the host while the program runs"

REFUSED.update(
    dict.fromkeys(
        ("all_gather", "all_reduce", "all_to_all", "collective_broadcast", "collective_permute", "partition_id",
         "reduce_scatter", "replica_id", "cross-replica-sum"), _COLLECTIVE,
    )
)  # fmt: skip
REFUSED["rng"] = _RANDOM
REFUSED.update(dict.fromkeys(("infeed", "outfeed", "recv", "send", "async_start", "async_done"), _HOST))
REFUSED.update(
    dict.fromkeys(
        ("uniform_quantize", "uniform_dequantize"), "has quantized types: hand over a model with integers and scales"
    )
)
