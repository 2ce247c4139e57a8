"""Models of transformers without weights: parameters have shapes and no memory, buffers are computed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from torch._subclasses.fake_tensor import FakeTensorMode

from mirlo_llm.generate.errors import ModelFolderError
from mirlo_llm.generate.traced.cache import LayerState
from mirlo_llm.generate.traced.interfaces import calling

TOKENS = 3
"""Number of tokens of the run that finds the states of layers."""
CACHES = ("cache", "past_key_values", "cache_params")
"""Names of arguments and results with caches."""
LONG_ROTATIONS = ("dynamic", "longrope")
"""Kinds of rotary embedding that depend on the text length, although cached keys are already rotated."""
LOCK = threading.RLock()
"""Protects temporary changes of PyTorch's and transformers' modules."""


@contextmanager
def _without_memory() -> Iterator[None]:
    """Allocate no memory for parameters that are registered in the block."""
    original = torch.nn.Module.register_parameter

    def register(module: Any, name: str, parameter: Any) -> None:
        if parameter is not None and parameter.device.type != "meta":
            parameter = torch.nn.Parameter(parameter.detach().to("meta"), requires_grad=False)
        original(module, name, parameter)

    torch.nn.Module.register_parameter = register
    try:
        yield
    finally:
        torch.nn.Module.register_parameter = original


def make_skeleton(folder: Path, trust_remote_code: bool, has_logits: bool = True) -> Any:
    """Return the model of a folder in f32, whose parameters are expanded from one element."""
    options = {"trust_remote_code": trust_remote_code, "local_files_only": True}
    kind = transformers.AutoModelForCausalLM if has_logits else transformers.AutoModel
    verbosity = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    try:
        config = transformers.AutoConfig.from_pretrained(folder, **options)
        with LOCK, _without_memory(), torch.no_grad():
            model = kind.from_config(
                config, attn_implementation="eager", dtype=torch.float32, trust_remote_code=trust_remote_code
            )
    except (ValueError, KeyError, OSError, ImportError, TypeError) as error:
        if not trust_remote_code and "trust_remote_code" in str(error):
            what = "the folder has code of its own, which runs with --trust-remote-code (trust_remote_code=True)"
            raise ModelFolderError(f"{folder}: {what}: read it first") from None
        raise ModelFolderError(f"{folder}: transformers cannot make the model: {_first_line(error)}") from error
    finally:
        transformers.logging.set_verbosity(verbosity)
    kept: dict[int, Any] = {}
    for module in model.eval().modules():
        for name, each in list(module._parameters.items()):
            if each is not None:  # tensors of one address and shape would be one constant
                blank = torch.zeros((), dtype=each.dtype).expand(each.shape)
                new = kept.setdefault(id(each), torch.nn.Parameter(blank, requires_grad=False))
                module._parameters[name] = new
        _keep_short_rotations(module)
        if isinstance(module, transformers.PreTrainedModel):
            module.warn_if_padding_and_no_attention_mask = _accept_tokens
    return model


def _accept_tokens(*unused: object) -> None:
    """Replace a check that would read tokens to warn about missing masks."""


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:400]


def _keep_short_rotations(module: Any) -> None:
    """Use the rotary embedding of short texts in all calls."""
    kind = getattr(module, "rope_type", None)
    if isinstance(kind, dict):
        module.rope_type = {key: "default" if each in LONG_ROTATIONS else each for key, each in kind.items()}
    elif kind in LONG_ROTATIONS:
        module.rope_type = "default"


def find_states(model: Any, rings_below: int) -> list[LayerState]:
    """Return the states of a model's layers, found in its own cache after a run without data.

    Layers whose own cache keeps a window of fewer tokens than `rings_below` have rings.
    """
    ids = torch.ones((1, TOKENS), dtype=torch.long)
    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad(), calling(model, "eager", "batched_mm"):
        output = model(input_ids=ids, use_cache=True, return_dict=True)
    kept = (getattr(output, name, None) for name in CACHES)
    cache: Any = next((each for each in kept if each is not None), None)
    if not hasattr(cache, "layers"):
        what = "it keeps no cache of transformers' class: its states are not known"
        raise ModelFolderError(f"model {type(model).__name__}: {what}; export it to ONNX")
    states: list[LayerState] = []
    for i, layer in enumerate(cache.layers):
        seen = getattr(layer, "sliding_window", None)
        window = int(seen) if seen is not None and seen < rings_below else None
        for kind in ("key", "value"):
            rows = getattr(layer, f"{kind}s", None)
            if isinstance(rows, torch.Tensor) and rows.numel():
                states.append(LayerState(i, kind, (rows.shape[1], rows.shape[3]), rows.dtype, window=window))
        rows = getattr(layer, "indexer_keys", None)
        if isinstance(rows, torch.Tensor):
            states.append(LayerState(i, "indexer_key", (1, rows.shape[2]), rows.dtype))
        for kind in ("conv_state", "recurrent_state"):
            for index, state in (getattr(layer, f"{kind}s", None) or {}).items():
                if state is not None:
                    states.append(LayerState(i, kind, tuple(state.shape[1:]), state.dtype, index))
    return states
