"""Architectures in plain torch: recurrent, graph, recommendation, audio, super-resolution and others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .entry import DYNAMO, TORCHSCRIPT, Entry, Input, integers, uniform

SEQUENCE = Input("sequence", ("batch", "seq", 16))
TOKENS = Input("tokens", ("batch", "seq"), integers(50))
IMAGE = Input("image", ("batch", 3, "height", "width"))
WAVE = Input("wave", ("batch", 1, "samples"))
NODES = Input("nodes", ("nodes", 8))
EDGES = Input("edges", (2, "edges"), integers(5))


def _module(parts: Callable[[], dict[str, Any]], forward: Callable[..., Any]) -> Callable[[], Any]:
    """Return a constructor of a module with these parts, whose `forward` gets the module first."""

    def make() -> Any:
        import torch

        class Module(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                for name, part in parts().items():
                    setattr(self, name, part)

        Module.forward = forward
        return Module()

    return make


def _entry(name: str, parts: Callable[[], dict[str, Any]], forward: Callable[..., Any], *inputs: Input,
           exporters: tuple[str, ...] = (TORCHSCRIPT, DYNAMO), **fields: Any) -> Entry:  # fmt: skip
    return Entry(name, "modules", _module(parts, forward), inputs, exporters=exporters, **fields)


def _nn() -> Any:
    import torch

    return torch.nn


def _recurrent(kind: str, **options: Any) -> Callable[[], dict[str, Any]]:
    def parts() -> dict[str, Any]:
        width = 24 * (2 if options.get("bidirectional") else 1)
        return {
            "cells": getattr(_nn(), kind)(16, 24, batch_first=True, **options),
            "head": _nn().Linear(options.get("proj_size", 0) or width, 5),
        }

    return parts


def _run_recurrent(self: Any, sequence: Any) -> Any:
    states, last = self.cells(sequence)
    return self.head(states), *(last if isinstance(last, tuple) else (last,))


def _language_model() -> dict[str, Any]:
    nn = _nn()
    return {"embed": nn.Embedding(50, 16), "cells": nn.LSTM(16, 16, 2, batch_first=True), "head": nn.Linear(16, 50)}


def _encoder() -> dict[str, Any]:
    nn = _nn()
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, norm_first=True)
    return {"encoder": nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)}


def _translate(self: Any, source: Any, target: Any) -> Any:
    mask = _nn().Transformer.generate_square_subsequent_mask(target.shape[1])
    return self.transformer(source, target, tgt_mask=mask)


def _bilstm_crf(self: Any, tokens: Any) -> Any:
    """Return the scores and the best tags of a linear chain, by a step of Viterbi for each of 8 places."""
    import torch

    scores = self.head(self.cells(self.embed(tokens))[0])
    best = scores[:, 0]
    for position in range(1, 8):
        best = torch.logsumexp(best[:, :, None] + self.between[None], 1) + scores[:, position]
    return scores, best.argmax(-1)


def _gcn(self: Any, nodes: Any, edges: Any) -> Any:
    import torch

    source, target = edges[0], edges[1]
    degree = torch.zeros(nodes.shape[0]).index_add(0, target, torch.ones(edges.shape[1])) + 1
    for layer in (self.first, self.second):
        sent = layer(nodes / degree[:, None].sqrt())
        nodes = torch.relu(torch.zeros_like(sent).index_add(0, target, sent[source]) + sent) / degree[:, None].sqrt()
    return nodes


def _gat(self: Any, nodes: Any, edges: Any) -> Any:
    import torch

    source, target = edges[0], edges[1]
    sent = self.first(nodes)
    score = torch.nn.functional.leaky_relu(self.score(torch.cat([sent[source], sent[target]], -1)), 0.2)
    weight = (score - score.max()).exp()
    total = torch.zeros(nodes.shape[0], 1).scatter_add(0, target[:, None], weight)
    return torch.zeros_like(sent).index_add(0, target, sent[source] * weight / (total[target] + 1e-9))


def _sage(self: Any, nodes: Any, edges: Any) -> Any:
    import torch

    index = edges[1][:, None].expand(-1, 8)
    most = torch.full_like(nodes, -1e4).scatter_reduce(0, index, nodes[edges[0]], "amax")
    return self.first(torch.cat([nodes, most], -1))


def _points(self: Any, points: Any) -> Any:
    features = self.features(points)
    return self.head(features.amax(2)), features


def _dlrm(self: Any, dense: Any, sparse: Any) -> Any:
    import torch

    parts = torch.stack([self.dense(dense), *(table(sparse[:, i]) for i, table in enumerate(self.tables))], 1)
    products = torch.bmm(parts, parts.transpose(1, 2))
    below = [products[:, row, :row] for row in range(1, 1 + len(self.tables))]
    return torch.sigmoid(self.head(torch.cat([parts[:, 0], *below], 1)))


def _unet(self: Any, image: Any) -> Any:
    import torch

    first = self.a(image)
    second = self.b(torch.max_pool2d(first, 2))
    return self.c(torch.cat([first, self.up(second)], 1))


def _fpn(self: Any, image: Any) -> Any:
    import torch

    first = self.a(image)
    second = self.b(first)
    up = torch.nn.functional.interpolate(second, size=first.shape[-2:], mode="nearest")
    return first + up, torch.nn.functional.interpolate(first, scale_factor=2.0, mode="bilinear", align_corners=False)


def _spatial_transformer(self: Any, image: Any) -> Any:
    import torch

    theta = self.locate(torch.nn.functional.adaptive_avg_pool2d(image, 1).flatten(1)).view(-1, 2, 3) * 0.1
    y, x = torch.meshgrid(torch.linspace(-1, 1, 16), torch.linspace(-1, 1, 16), indexing="ij")
    grid = torch.stack([x, y, torch.ones_like(x)], -1).view(1, -1, 3) @ theta.transpose(1, 2)
    return torch.nn.functional.grid_sample(image, grid.view(-1, 16, 16, 2), align_corners=False)


def _wavenet(self: Any, wave: Any) -> Any:
    import torch

    hidden, skips = self.first(wave), 0
    for gate, mix in zip(self.gates, self.mixes, strict=True):
        a, b = gate(hidden)[..., : hidden.shape[-1]].chunk(2, 1)
        mixed = mix(torch.tanh(a) * torch.sigmoid(b))
        hidden, skips = hidden + mixed, skips + mixed
    return self.last(torch.relu(skips))


def _wavenet_parts() -> dict[str, Any]:
    nn = _nn()
    gates = [nn.Conv1d(8, 16, 2, dilation=2**i, padding=2**i) for i in range(4)]
    return {"first": nn.Conv1d(1, 8, 1), "gates": nn.ModuleList(gates), "last": nn.Conv1d(8, 16, 1),
            "mixes": nn.ModuleList(nn.Conv1d(8, 8, 1) for _ in range(4))}  # fmt: skip


def _tasnet(self: Any, wave: Any) -> Any:
    import torch

    coded = torch.relu(self.encode(wave))
    masks = torch.sigmoid(self.separate(self.norm(coded))).view(coded.shape[0], 2, 16, -1)
    return self.decode((coded[:, None] * masks).flatten(0, 1))


def _spectrogram(self: Any, wave: Any) -> Any:
    import torch

    framed = torch.stft(wave[:, 0], 64, 16, window=self.window, return_complex=False, center=True)
    return self.head((framed.square().sum(-1) + 1e-6).log().transpose(1, 2))


def _window() -> dict[str, Any]:
    import torch

    return {"window": torch.nn.Parameter(torch.hann_window(64)), "head": torch.nn.Linear(33, 8)}


def _deep_speech(self: Any, features: Any) -> Any:
    x = self.convolve(features[:, None])
    x = x.permute(0, 2, 1, 3).flatten(2)
    return self.head(self.cells(x)[0]).log_softmax(-1)


def _fourier(self: Any, image: Any) -> Any:
    import torch

    spectrum = torch.fft.rfft2(image, norm="ortho")
    return torch.view_as_real(spectrum)


def _yolo(self: Any, image: Any) -> Any:
    import torch

    out = self.head(self.stem(image))
    batch, _, rows, columns = out.shape
    out = out.view(batch, 2, 7, rows, columns).permute(0, 1, 3, 4, 2)
    y, x = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
    centre = (out[..., :2].sigmoid() + torch.stack([x, y], -1)) * 8
    size = out[..., 2:4].exp() * 16
    return torch.cat([centre - size / 2, centre + size / 2, out[..., 4:].sigmoid()], -1).flatten(1, 3)


def _center_net(self: Any, image: Any) -> Any:
    import torch

    heat = self.head(self.stem(image)).sigmoid()
    peaks = heat * (torch.nn.functional.max_pool2d(heat, 3, 1, 1) == heat)
    scores, indices = peaks.flatten(1).topk(10)
    columns = heat.shape[-1]
    return scores, indices % columns, torch.div(indices, columns, rounding_mode="floor") % columns


def _capsules(self: Any, image: Any) -> Any:
    import torch

    parts = self.stem(image).flatten(2).transpose(1, 2)
    votes = torch.einsum("bnd,kde->bkne", parts, self.weights)
    logits = torch.zeros(votes.shape[:3])
    for _ in range(2):
        mixed = (logits.softmax(1)[..., None] * votes).sum(2)
        norm = mixed.norm(dim=-1, keepdim=True)
        pose = norm / (1 + norm * norm) * mixed
        logits = logits + torch.einsum("bkne,bke->bkn", votes, pose)
    return pose.norm(dim=-1)


def _flow(self: Any, values: Any) -> Any:
    import torch

    total = 0
    for net in (self.a, self.b):
        kept, changed = values.chunk(2, -1)
        scale, shift = net(kept).chunk(2, -1)
        values = torch.cat([changed * torch.tanh(scale).exp() + shift, kept], -1)
        total = total + torch.tanh(scale).sum(-1)
    return values, total - 0.5 * (values**2).sum(-1)


def _nerf(self: Any, places: Any) -> Any:
    import torch

    waves = torch.cat([f(places * 2.0**i) for i in range(4) for f in (torch.sin, torch.cos)], -1)
    out = self.net(waves)
    alpha = 1 - (-torch.nn.functional.softplus(out[..., 3])).exp()
    seen = torch.cat([torch.zeros_like(alpha[:, :1]), (1 - alpha + 1e-10).log()], 1).cumsum(1).exp()[:, :-1]
    return ((alpha * seen)[..., None] * out[..., :3].sigmoid()).sum(1)


def _linear_attention(self: Any, sequence: Any) -> Any:
    import torch

    q, k, v = self.qkv(sequence).chunk(3, -1)
    q, k = torch.nn.functional.elu(q) + 1, torch.nn.functional.elu(k) + 1
    state = torch.cumsum(torch.einsum("bsd,bse->bsde", k, v), 1)
    return torch.einsum("bsd,bsde->bse", q, state) / (q * torch.cumsum(k, 1)).sum(-1, keepdim=True)


def _ctc_decode(self: Any, features: Any) -> Any:
    import torch

    best = self.head(features).argmax(-1)
    kept = torch.cat([torch.ones_like(best[:, :1], dtype=torch.bool), best[:, 1:] != best[:, :-1]], 1) & (best != 0)
    return torch.where(kept, best, -1), kept.sum(1)


def _windows(self: Any, image: Any) -> Any:
    import torch

    patches = torch.nn.functional.unfold(image, 4, stride=4)
    mixed = self.mix(patches.transpose(1, 2)).transpose(1, 2)
    return torch.nn.functional.fold(mixed, (64, 64), 4, stride=4)


def _relu_stack(*channels: int, **options: Any) -> Any:
    nn = _nn()
    pairs = zip(channels, channels[1:], strict=False)
    return nn.Sequential(*(part for a, b in pairs for part in (nn.Conv2d(a, b, 3, padding=1, **options), nn.ReLU())))


def _generator() -> dict[str, Any]:
    nn = _nn()
    layers = [nn.ConvTranspose2d(8, 32, 4, 1, 0), nn.BatchNorm2d(32), nn.ReLU(), nn.ConvTranspose2d(32, 16, 4, 2, 1),
              nn.BatchNorm2d(16), nn.ReLU(), nn.ConvTranspose2d(16, 3, 4, 2, 1), nn.Tanh()]  # fmt: skip
    return {"net": nn.Sequential(*layers)}


def _style(self: Any, image: Any) -> Any:
    return self.net(image)


def _style_parts() -> dict[str, Any]:
    nn = _nn()
    layers = [nn.ReflectionPad2d(2), nn.Conv2d(3, 8, 5), nn.InstanceNorm2d(8, affine=True), nn.ReLU(),
              nn.Conv2d(8, 16, 3, 2, 1), nn.InstanceNorm2d(16), nn.PReLU(16), nn.Upsample(scale_factor=2),
              nn.ReplicationPad2d(1), nn.Conv2d(16, 3, 3)]  # fmt: skip
    return {"net": nn.Sequential(*layers)}


def _super_resolution() -> dict[str, Any]:
    nn = _nn()
    return {"net": nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 12, 3, padding=1),
                                 nn.PixelShuffle(2))}  # fmt: skip


def _through(self: Any, x: Any) -> Any:
    return self.net(x)


def _parameter(*shape: int) -> Any:
    import torch

    return torch.nn.Parameter(torch.randn(*shape, generator=torch.Generator().manual_seed(0)))


ENTRIES = (
    _entry("rnn_tanh", _recurrent("RNN"), _run_recurrent, SEQUENCE),
    _entry("lstm", _recurrent("LSTM"), _run_recurrent, SEQUENCE),
    _entry("lstm_bidirectional", _recurrent("LSTM", bidirectional=True, num_layers=2), _run_recurrent, SEQUENCE),
    _entry("lstm_projected", _recurrent("LSTM", proj_size=8), _run_recurrent, SEQUENCE, exporters=(DYNAMO,)),
    _entry("gru", _recurrent("GRU"), _run_recurrent, SEQUENCE),
    _entry("gru_bidirectional", _recurrent("GRU", bidirectional=True), _run_recurrent, SEQUENCE),
    _entry("lstm_language_model", _language_model, lambda self, tokens: self.head(self.cells(self.embed(tokens))[0]),
           TOKENS),
    _entry("bilstm_crf", lambda: {**_language_model(), "head": _nn().Linear(16, 6), "between": _parameter(6, 6)},
           _bilstm_crf, TOKENS, sizes={"seq": (8, 16, 9)}),
    _entry("transformer_encoder", _encoder, lambda self, sequence: self.encoder(sequence), SEQUENCE),
    _entry("transformer", lambda: {"transformer": _nn().Transformer(16, 4, 1, 1, 32, batch_first=True)}, _translate,
           Input("source", ("batch", "seq", 16)), Input("target", ("batch", "target_seq", 16))),
    _entry("multihead_attention", lambda: {"attend": _nn().MultiheadAttention(16, 4, batch_first=True)},
           lambda self, sequence: self.attend(sequence, sequence, sequence), SEQUENCE),
    _entry("linear_attention", lambda: {"qkv": _nn().Linear(16, 48)}, _linear_attention, SEQUENCE),
    _entry("gcn", lambda: {"first": _nn().Linear(8, 16), "second": _nn().Linear(16, 4)}, _gcn, NODES, EDGES),
    _entry("gat", lambda: {"first": _nn().Linear(8, 16), "score": _nn().Linear(32, 1)}, _gat, NODES, EDGES),
    _entry("graph_sage_max", lambda: {"first": _nn().Linear(16, 4)}, _sage, NODES, EDGES),
    _entry("pointnet", lambda: {"features": _nn().Sequential(_nn().Conv1d(3, 16, 1), _nn().BatchNorm1d(16),
                                                             _nn().ReLU(), _nn().Conv1d(16, 32, 1)),
                                "head": _nn().Linear(32, 5)}, _points, Input("points", ("batch", 3, "seq"))),
    _entry("dlrm", lambda: {"dense": _nn().Sequential(_nn().Linear(6, 8), _nn().ReLU()), "head": _nn().Linear(14, 1),
                            "tables": _nn().ModuleList(_nn().Embedding(50, 8) for _ in range(3))}, _dlrm,
           Input("dense", ("batch", 6)), Input("sparse", ("batch", 3), integers(50))),
    _entry("embedding_bag", lambda: {"bag": _nn().EmbeddingBag(50, 8, mode="mean"), "head": _nn().Linear(8, 2)},
           lambda self, tokens: self.head(self.bag(tokens)), TOKENS),
    _entry("unet", lambda: {"a": _relu_stack(3, 8, 8), "b": _relu_stack(8, 16),
                            "up": _nn().ConvTranspose2d(16, 8, 2, 2), "c": _nn().Conv2d(16, 2, 1)}, _unet, IMAGE),
    _entry("fpn", lambda: {"a": _relu_stack(3, 8), "b": _relu_stack(8, 8, stride=2)}, _fpn, IMAGE),
    _entry("style_transfer", _style_parts, _style, IMAGE),
    _entry("espcn", _super_resolution, _through, IMAGE),
    _entry("dcgan", _generator, _through, Input("noise", ("batch", 8, 1, 1))),
    _entry("spatial_transformer", lambda: {"locate": _nn().Linear(3, 6)}, _spatial_transformer, IMAGE),
    _entry("patch_mixer", lambda: {"mix": _nn().Linear(48, 48)}, _windows, Input("image", ("batch", 3, 64, 64)),
           opset=18),
    _entry("wavenet", _wavenet_parts, _wavenet, WAVE),
    _entry("conv_tasnet", lambda: {"encode": _nn().Conv1d(1, 16, 16, 8), "norm": _nn().GroupNorm(1, 16),
                                   "separate": _nn().Conv1d(16, 32, 1), "decode": _nn().ConvTranspose1d(16, 1, 16, 8)},
           _tasnet, WAVE),
    _entry("spectrogram", _window, _spectrogram, WAVE),
    _entry("deep_speech", lambda: {"convolve": _nn().Sequential(_nn().Conv2d(1, 4, (5, 5), (2, 2), 2),
                                                                _nn().Hardtanh(0, 20)),
                                   "cells": _nn().GRU(32, 16, bidirectional=True, batch_first=True),
                                   "head": _nn().Linear(32, 10)}, _deep_speech,
           Input("features", ("batch", "frames", 16))),
    _entry("ctc_decode", lambda: {"head": _nn().Linear(16, 6)}, _ctc_decode, SEQUENCE),
    _entry("fourier", lambda: {}, _fourier, Input("image", ("batch", 2, 16, 16)), exporters=(DYNAMO,)),
    _entry("yolo_head", lambda: {"stem": _relu_stack(3, 8, 8, stride=2), "head": _nn().Conv2d(8, 14, 1)}, _yolo, IMAGE),
    _entry("center_net", lambda: {"stem": _relu_stack(3, 8, stride=2), "head": _nn().Conv2d(8, 2, 1)}, _center_net,
           IMAGE),
    _entry("capsules", lambda: {"stem": _relu_stack(3, 8, stride=8), "weights": _parameter(4, 8, 6)}, _capsules,
           Input("image", ("batch", 3, 32, 32))),
    _entry("flow", lambda: {"a": _nn().Linear(4, 8), "b": _nn().Linear(4, 8)}, _flow, Input("values", ("batch", 8))),
    _entry("nerf", lambda: {"net": _nn().Sequential(_nn().Linear(24, 32), _nn().ReLU(), _nn().Linear(32, 4))}, _nerf,
           Input("places", ("batch", "seq", 3), uniform), exporters=(DYNAMO,)),
)  # fmt: skip
