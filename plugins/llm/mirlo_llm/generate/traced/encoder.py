"""The graph of a transformers model on whole texts, which returns a row for each token."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import torch

from mirlo.extend.frontend import ImportedModule
from mirlo_llm.generate.traced.export import export, import_exported_model
from mirlo_llm.generate.traced.interfaces import NAME, calling
from mirlo_llm.generate.traced.scans import scanning
from mirlo_llm.generate.traced.skeleton import LOCK, make_skeleton

Tensor = Any
BATCH, LENGTH = 2, 5
"""Sizes of the traced example."""


class TracedEncoder(torch.nn.Module):  # type: ignore[misc]
    """A model with the interface of encoders: tokens and a mask to rows."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        accepted = inspect.signature(inspect.unwrap(model.forward)).parameters
        self._named = {"use_cache": False} if "use_cache" in accepted else {}

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Compute the last hidden states; the mask is 0 where a text is padded."""
        output = self.model(input_ids=input_ids, attention_mask=attention_mask, return_dict=True, **self._named)
        return output.last_hidden_state


def import_traced_encoder(weights: Path, config: Path, trust_remote_code: bool = False) -> ImportedModule:
    """Import a model of texts by the code of transformers, with the weights of a file."""
    with LOCK:
        model = make_skeleton(config.parent, trust_remote_code, has_logits=False)
        each = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length")}
        ones = torch.ones((BATCH, LENGTH), dtype=torch.long)
        with calling(model, NAME, NAME) as use, scanning(model):
            program = export(TracedEncoder(model), model, (ones, ones.clone()), (each, dict(each)), config)
        names = (["input_ids", "attention_mask"], ["last_hidden_state"])
        return import_exported_model(program, model, use, weights, config, names)
