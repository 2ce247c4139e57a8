"""Parts of diffusion pipelines from diffusers."""

from __future__ import annotations

from typing import Any

from .entry import Entry, Input, integers
from .export import by_name

LATENT = Input("sample", ("batch", 4, "height", "width"))
TIME = Input("timestep", ("batch",), integers(1000))
STATES = Input("encoder_hidden_states", ("batch", "seq", 32))
SIZES = {"height": (16, 24, 32), "width": (16, 32, 24), "seq": (7, 12, 20)}
SQUARE = {"height": (16, 16, 16), "width": (16, 16, 16), "seq": (7, 12, 20)}
FIXED = frozenset({"height", "width"})
BLOCKS = {"block_out_channels": (16, 32), "layers_per_block": 1, "norm_num_groups": 4}
UNET = {
    **BLOCKS,
    "sample_size": 16,
    "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
    "up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D"),
    "cross_attention_dim": 32,
    "attention_head_dim": 4,
}
ENCODER = {
    **BLOCKS,
    "down_block_types": ("DownEncoderBlock2D",) * 2,
    "up_block_types": ("UpDecoderBlock2D",) * 2,
    "latent_channels": 4,
}
TRANSFORMER = {"num_layers": 1, "num_attention_heads": 4, "attention_head_dim": 8}


def _part(architecture: str, options: dict[str, Any], *inputs: Input, method: str = "forward", **fields: Any) -> Entry:
    def make() -> Any:
        from .vision_ops import load

        load()
        import diffusers

        model = getattr(diffusers, architecture)(**options)
        if method != "forward":
            model.forward = getattr(model, method)
        return by_name(model, tuple(each.name for each in inputs), return_dict=False)

    name = architecture if method == "forward" else f"{architecture}_{method}"
    return Entry(name, "diffusers", make, inputs, **{"sizes": SIZES, **fields})


ENTRIES = (
    _part("UNet2DModel", {**BLOCKS, "sample_size": 16, "in_channels": 4, "out_channels": 4,
                          "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
                          "up_block_types": ("AttnUpBlock2D", "UpBlock2D")}, LATENT, TIME),
    _part("UNet2DConditionModel", UNET, LATENT, TIME, STATES),
    _part("AutoencoderKL", ENCODER, Input("z", ("batch", 4, "height", "width")), method="decode"),
    _part("AutoencoderTiny", {"encoder_block_out_channels": (16, 16), "decoder_block_out_channels": (16, 16),
                              "num_encoder_blocks": (1, 1), "num_decoder_blocks": (1, 1)},
          Input("sample", ("batch", 3, "height", "width"))),
    _part("VQModel", {**ENCODER, "num_vq_embeddings": 16}, Input("sample", ("batch", 3, "height", "width"))),
    _part("DiTTransformer2DModel", {**TRANSFORMER, "in_channels": 4, "out_channels": 4, "sample_size": 16,
                                    "patch_size": 2, "num_embeds_ada_norm": 10, "norm_num_groups": 4},
          Input("hidden_states", ("batch", 4, "height", "width")), TIME,
          Input("class_labels", ("batch",), integers(10)), sizes=SQUARE, fixed=FIXED),
    _part("PixArtTransformer2DModel", {**TRANSFORMER, "in_channels": 4, "out_channels": 4, "sample_size": 16,
                                       "patch_size": 2, "cross_attention_dim": 32, "caption_channels": 32,
                                       "use_additional_conditions": False},
          Input("hidden_states", ("batch", 4, "height", "width")), STATES, TIME, sizes=SQUARE, fixed=FIXED),
    _part("SD3Transformer2DModel", {**TRANSFORMER, "in_channels": 4, "out_channels": 4, "sample_size": 16,
                                    "patch_size": 2, "joint_attention_dim": 32, "caption_projection_dim": 32,
                                    "pooled_projection_dim": 16, "pos_embed_max_size": 16},
          Input("hidden_states", ("batch", 4, "height", "width")), STATES,
          Input("pooled_projections", ("batch", 16)), TIME, sizes=SQUARE, fixed=FIXED),
    _part("PriorTransformer", {**TRANSFORMER, "embedding_dim": 16, "num_embeddings": 7, "additional_embeddings": 4},
          Input("hidden_states", ("batch", 16)), TIME, Input("proj_embedding", ("batch", 16)),
          Input("encoder_hidden_states", ("batch", 7, 16))),
    _part("ControlNetModel", {**BLOCKS, "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
                              "cross_attention_dim": 32, "attention_head_dim": 4,
                              "conditioning_embedding_out_channels": (8, 16, 16, 16)},
          LATENT, TIME, STATES, Input("controlnet_cond", ("batch", 3, 128, 128)), sizes=SQUARE, fixed=FIXED),
    _part("UNet1DModel", {"block_out_channels": (32, 32), "in_channels": 2, "out_channels": 2, "sample_size": 64,
                          "down_block_types": ("DownBlock1DNoSkip", "DownBlock1D"),
                          "up_block_types": ("UpBlock1D", "UpBlock1DNoSkip"), "extra_in_channels": 64},
          Input("sample", ("batch", 2, 64)), TIME),
)  # fmt: skip
