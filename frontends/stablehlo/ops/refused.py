"""Operations that are not supported, and why."""

from __future__ import annotations

from mirlo.frontends.stablehlo.registry import REFUSED

_COLLECTIVE = "exchanges data between devices: export the program for one device"
_COMPLEX = "computes with complex numbers, which are not supported"
_RANDOM = (
    "makes random numbers whose values StableHLO does not define: use JAX's default generator, threefry, which is made "
    "of ordinary operations"
)
_TUPLES = "has tuples: return the elements as results of their own"
_HOST = "communicates with the host while the program runs"
_SOLVER = "factors or solves matrices, which is not supported"
_TRAINING = "is for training: export the function in evaluation mode"

REFUSED.update(
    dict.fromkeys(
        ("all_gather", "all_reduce", "all_to_all", "collective_broadcast", "collective_permute", "partition_id",
         "reduce_scatter", "replica_id", "cross-replica-sum"), _COLLECTIVE,
    )
)  # fmt: skip
REFUSED.update(dict.fromkeys(("complex", "imag", "real", "fft"), _COMPLEX))
REFUSED.update(dict.fromkeys(("rng", "rng_bit_generator"), _RANDOM))
REFUSED.update(dict.fromkeys(("tuple", "get_tuple_element"), _TUPLES))
REFUSED.update(
    dict.fromkeys(
        ("after_all", "create_token", "infeed", "outfeed", "recv", "send", "async_start", "async_done"), _HOST
    )
)
REFUSED.update(dict.fromkeys(("cholesky", "triangular_solve"), _SOLVER))
REFUSED.update(dict.fromkeys(("batch_norm_training", "batch_norm_grad", "select_and_scatter"), _TRAINING))
REFUSED.update(
    dict.fromkeys(
        ("uniform_quantize", "uniform_dequantize"), "has quantized types: hand over a model with integers and scales"
    )
)
