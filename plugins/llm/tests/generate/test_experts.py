"""Mixtures of experts: one loop, whatever their number, and a loop for each form of weights."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from layered_folders import write_layers
from mirlo_llm import generate
from mirlo_llm.generate.checkpoints.safetensors import read_checkpoint
from safetensors_file import write_safetensors
from test_equal_layers import compiled_kernels, read_arrays
from test_packed import write_form

PROMPT = [3, 9, 4, 17, 25, 8, 30]
FORMS = {
    "one form": (0,) * 6, "two forms": (0, 1, 0, 1, 1, 0), "one expert of another form": (0, 0, 0, 0, 1, 0),
    "the first one alone": (1, 0, 0, 0, 0, 0),
}  # fmt: skip
"""By case, whether each expert has weights in bf16 in place of f32."""


@pytest.mark.sample(3)
@pytest.mark.parametrize("form", ["", "gptq 4", "compressed 8"])
def test_the_number_of_experts_does_not_matter(form: str, tmp_path: Path) -> None:
    """The kernels are as many, with the same names, also where weights stay packed."""

    def kernels(count: int) -> tuple[set[str], int]:
        folder = write_layers(tmp_path / str(count), 1, count)
        if form:
            write_form(folder, form, read_arrays(folder))
        return compiled_kernels(folder)

    few, many = kernels(3), kernels(24)
    assert few == many
    assert any(name.startswith("matmul_u") for name in few[0]) == bool(form)


@pytest.mark.sample(4)
@pytest.mark.parametrize("forms", FORMS.values(), ids=FORMS)
def test_experts_of_several_forms(forms: tuple[int, ...], tmp_path: Path) -> None:
    """Experts with weights of one type are in a loop; the tokens are those of the same weights in f32."""
    plain = write_layers(tmp_path / "plain", 1, experts=6, chosen=3)
    tensors = dict(read_checkpoint(plain / "model.safetensors"))
    narrow = {f".experts.{expert}." for expert, is_narrow in enumerate(forms) if is_narrow}
    rounded = {
        name: each.astype(ml_dtypes.bfloat16) if any(part in name for part in narrow) else each
        for name, each in tensors.items()
    }
    mixed = write_layers(tmp_path / "mixed", 1, experts=6, chosen=3)
    write_safetensors(mixed / "model.safetensors", rounded)
    wide = {name: each.astype(np.float32) for name, each in rounded.items()}
    write_safetensors(plain / "model.safetensors", wide)
    logits = [
        np.concatenate(list(generate.load(each, cache=False).text_logits(np.array(PROMPT)))) for each in (plain, mixed)
    ]
    np.testing.assert_allclose(logits[0], logits[1], rtol=1e-4, atol=1e-5)
    loops = generate.load(mixed, cache=False).executable.artifact.kernels
    members = [forms.count(form) for form in set(forms)]
    assert [kernel.kind for kernel in loops].count("control") == sum(count > 1 for count in members)
