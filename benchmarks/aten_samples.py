"""Samples of PyTorch's operator database: calls of an operator, with their results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

UNDEFINED = (
    "empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted", "resize_",
    "resize_as_", "nn.functional.dropout", "nn.functional.dropout2d", "nn.functional.dropout3d",
    "nn.functional.alpha_dropout", "nn.functional.feature_alpha_dropout", "nn.functional.rrelu", "normal", "bernoulli",
    "multinomial", "cauchy", "exponential", "geometric", "log_normal", "uniform", "randn", "randn_like", "rand_like",
    "randint", "randint_like", "nn.functional.fractional_max_pool2d", "nn.functional.fractional_max_pool3d",
    "svd_lowrank", "pca_lowrank", "item", "to_sparse", "sparse.mm", "sparse.sampled_addmm", "jiterator_unary",
    "jiterator_binary", "jiterator_4inputs_with_extra_args", "jiterator_binary_return_by_ref",
    "jiterator_2inputs_2outputs", "equal", "allclose", "broadcast_shapes", "hash_tensor",
)  # fmt: skip
"""Operators whose results are random, not defined, or no tensors."""


@dataclass
class Sample:
    """A call of an operator, whose tensors are arguments."""

    function: Callable[..., Any]
    """Calls the operator, and returns what the database says can be compared: of vectors, not their signs."""
    leaves: list[Any]
    spec: Any
    places: list[int]
    """Where tensors are among the leaves."""
    name: str
    """The operator's."""

    @staticmethod
    def of(entry: Any, sample_input: Any) -> Sample:
        """Return a sample of the database."""
        import torch
        from torch.utils import _pytree as pytree

        leaves, spec = pytree.tree_flatten(((sample_input.input, *sample_input.args), dict(sample_input.kwargs)))
        indices = [index for index, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        leaves = [leaf.detach() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]

        def comparable(*args: Any, **kwargs: Any) -> Any:
            return sample_input.output_process_fn_grad(entry.op(*args, **kwargs))

        return Sample(comparable, leaves, spec, indices, entry.name)

    @property
    def tensors(self) -> list[Any]:
        """Return the arguments."""
        return [self.leaves[place] for place in self.places]

    @property
    def is_stable(self) -> bool:
        """Return whether equal elements must keep their order."""
        from torch.utils import _pytree as pytree

        return bool(pytree.tree_unflatten(self.leaves, self.spec)[1].get("stable"))

    def call(self, tensors: Sequence[Any]) -> list[Any]:
        """Call the operator on other tensors; return the tensors of its result."""
        import torch
        from torch.utils import _pytree as pytree

        leaves = list(self.leaves)
        for position, tensor in zip(self.places, tensors, strict=True):
            leaves[position] = tensor
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        results = pytree.tree_leaves(self.function(*args, **kwargs))
        return [each for each in results if isinstance(each, torch.Tensor)]


def program_of(samples: Sequence[Sample]) -> Any:
    """Return an exported program that computes samples, each from arguments of its own."""
    import torch

    class Calls(torch.nn.Module):  # type: ignore[misc]
        def forward(self, *arguments: Any) -> Any:
            rest, outputs = iter(arguments), []
            for sample in samples:
                outputs.extend(sample.call([next(rest) for _ in sample.places]))
            return tuple(outputs)

    with torch.no_grad():
        return torch.export.export(Calls(), tuple(tensor.clone() for each in samples for tensor in each.tensors))


def samples_of(entry: Any, dtype: Any, most: int) -> Iterator[tuple[Sample, list[Any]]]:
    """Return samples that PyTorch computes, with their results."""
    import torch

    for sample_input in list(entry.sample_inputs("cpu", dtype, requires_grad=False))[:most]:
        sample = Sample.of(entry, sample_input)
        if any(each.layout is not torch.strided for each in sample.tensors):
            continue
        try:
            expected = sample.call([tensor.clone() for tensor in sample.tensors])
        except Exception:
            continue
        if expected and not any(each.layout is not torch.strided for each in expected):
            yield sample, expected


def name_of(entry: Any) -> str:
    """Return the name of an entry of the database."""
    return str(entry.name) + (f":{entry.variant_test_name}" if entry.variant_test_name else "")


def entries(names: Sequence[str]) -> list[Any]:
    """Return entries of the database: all whose results can be compared, or those of these names."""
    from torch.testing._internal.common_methods_invocations import op_db

    if names:
        return [entry for entry in op_db if entry.name in names or name_of(entry) in names]
    return [entry for entry in op_db if entry.name not in UNDEFINED]


def described(sample: Sample) -> str:
    import torch

    def text(leaf: Any) -> str:
        if not isinstance(leaf, torch.Tensor):
            return repr(leaf)
        return f"{str(leaf.dtype).removeprefix('torch.')}{list(leaf.shape)}"

    return ", ".join(map(text, sample.leaves))
