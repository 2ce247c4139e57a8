"""`torch.compile(model, backend="mirlo")`: compile the graphs that TorchDynamo captures."""

from __future__ import annotations

from mirlo_torch.backend.backend import mirlo_backend as mirlo_backend
