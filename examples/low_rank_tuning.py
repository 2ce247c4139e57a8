"""Fine-tune a language model whose weights have 4 bits: adapters of low rank are trained, the weights stay.

python examples/low_rank_tuning.py [--steps 150]         # about two minutes on two cores; needs mirlo[torch]

A small decoder of characters learns the source of a module of Python, and gets weights of 4 bits. Then adapters learn
the Zen of Python on top of it. All steps are compiled by `torch.compile(model, backend="mirlo")`.
"""

from __future__ import annotations

import argparse
import codecs
import contextlib
import inspect
import io
import json.decoder

import torch
from torch import nn
from torch.nn import functional as F

LENGTH, BATCH, GROUP, RANK = 64, 16, 32, 4
CHARACTERS = 128


class Block(nn.Module):
    """A layer of a decoder."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.before(x)).chunk(3, -1)
        query, key, value = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in parts)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.between(x))))


class Decoder(nn.Module):
    """A decoder of characters."""

    def __init__(self, width: int = 128, layers: int = 3) -> None:
        super().__init__()
        self.characters, self.places = nn.Embedding(CHARACTERS, width), nn.Embedding(LENGTH, width)
        self.blocks = nn.ModuleList(Block(width, 4) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, CHARACTERS)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        x = self.characters(text) + self.places.weight[: text.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Adapted(nn.Module):
    """A linear layer with weights of 4 bits, two in a byte and a scale for each group, and an adapter that learns."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        groups = layer.weight.detach().unflatten(1, (-1, GROUP))
        scales = groups.abs().amax(-1, keepdim=True).clamp(min=1e-8) / 7
        codes = ((groups / scales).round() + 8).flatten(1).to(torch.uint8)
        self.register_buffer("codes", codes[:, ::2] | codes[:, 1::2] << 4)
        self.register_buffer("scales", scales)
        self.register_buffer("bias", layer.bias.detach().clone())
        self.down = nn.Parameter(torch.randn(RANK, layer.in_features) / layer.in_features**0.5)
        self.up = nn.Parameter(torch.zeros(layer.out_features, RANK))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        codes = torch.stack([self.codes & 15, self.codes >> 4], -1).flatten(1)
        weights = ((codes.to(x.dtype) - 8).unflatten(1, (-1, GROUP)) * self.scales).flatten(1)
        return F.linear(x, weights, self.bias) + F.linear(F.linear(x, self.down), self.up)


def adapt(model: nn.Module) -> nn.Module:
    """Give all layers of the blocks weights of 4 bits and adapters; nothing else learns."""
    model.requires_grad_(False)
    for block in model.blocks:
        for name in ("qkv", "out", "up", "down"):
            setattr(block, name, Adapted(getattr(block, name)))
    return model


def train(model: nn.Module, text: torch.Tensor, steps: int, rate: float) -> list[float]:
    """Train on random parts of a text; return the losses."""
    compiled = torch.compile(model, backend="mirlo")
    optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], rate)
    losses = []
    for step in range(steps):
        starts = torch.randint(0, len(text) - LENGTH - 1, (BATCH,))
        parts = torch.stack([text[start : start + LENGTH + 1] for start in starts])
        loss = F.cross_entropy(compiled(parts[:, :-1]).flatten(0, 1), parts[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step % 25 == 0 or step == steps - 1:
            print(f"  step {step:4}: loss {losses[-1]:.3f}")
    return losses


def encoded(text: str) -> torch.Tensor:
    """Return the characters of a text as numbers."""
    return torch.tensor([min(ord(each), CHARACTERS - 1) for each in text])


def zen() -> str:
    """Return the Zen of Python, which the module `this` prints when it is imported."""
    with contextlib.redirect_stdout(io.StringIO()):
        import this
    return codecs.decode(this.s, "rot13")


def main() -> None:
    """Train, quantize, fine-tune."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=150, help="steps of each of the two (%(default)s)")
    steps = parser.parse_args().steps
    torch.manual_seed(0)
    model = Decoder()
    print("training on the source of json.decoder")
    train(model, encoded(inspect.getsource(json.decoder)), steps, 3e-3)
    adapt(model)
    learned = sum(each.numel() for each in model.parameters() if each.requires_grad)
    kept = sum(each.numel() * each.element_size() for each in model.buffers())
    print(f"tuning {learned:,} numbers of adapters beside {kept:,} bytes of weights of 4 bits")
    before = [each.clone() for each in model.buffers()]
    losses = train(model, encoded(zen()), steps, 1e-2)
    assert all(map(torch.equal, before, model.buffers()))
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}; the weights are as they were")


if __name__ == "__main__":
    main()
