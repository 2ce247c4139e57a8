"""Operations that are not supported, each with its reason."""

from __future__ import annotations

from mirlo_stablehlo.registry import REFUSED

_RANDOM = (
    "makes random numbers whose values StableHLO does not define: use rng_bit_generator, or JAX's default generator, "
    "threefry, which is made of ordinary operations"
)
_HOST = "communicates with the host while the program runs"

REFUSED["rng"] = _RANDOM
REFUSED.update(dict.fromkeys(("infeed", "outfeed", "recv", "send", "async_start", "async_done"), _HOST))
REFUSED.update(
    dict.fromkeys(
        ("uniform_quantize", "uniform_dequantize"), "has quantized types: hand over a model with integers and scales"
    )
)
