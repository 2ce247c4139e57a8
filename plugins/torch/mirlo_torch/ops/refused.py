"""Operators that are not supported, each with its reason."""

from __future__ import annotations

from mirlo_torch.registry import REFUSED

_RANDOM = "makes random numbers, which compiled models do not"
_SOLVER = "computes eigenvalues of matrices that are not symmetric, or a factorization that is not supported"
_TRAINING = "is for training: only inference is compiled; call eval() of its module"
_SIZES = "has a size that data determine"

for _reason, _names in {
    _RANDOM: "rand randn randint randperm rand_like randn_like randint_like bernoulli normal multinomial uniform",
    _SOLVER: "linalg_eig _linalg_eigvals linalg_lstsq linalg_ldl_factor_ex linalg_ldl_solve linalg_eigvals",
    _TRAINING: "_native_batch_norm_legit native_batch_norm convolution_backward native_layer_norm_backward "
    "native_group_norm_backward embedding_dense_backward",
    _SIZES: "unique_dim",
}.items():
    REFUSED.update(dict.fromkeys((f"aten.{name}" for name in _names.split()), _reason))

_WRITES = "calls an operator that writes its arguments: declare it with mutates_args=() and return the new values"
REFUSED.update(dict.fromkeys(("higher_order.auto_functionalized", "higher_order.auto_functionalized_v2"), _WRITES))
