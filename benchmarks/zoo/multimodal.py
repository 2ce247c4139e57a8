"""Models of transformers over images, sound, and several of them at once."""

from __future__ import annotations

from typing import Any

from .entry import Entry, Input, uniform
from .transformers import IDS, MASK, TARGET_IDS, TEXT, entry

PIXELS = Input("pixel_values", ("batch", 3, "height", "width"))
WAVE = Input("input_values", ("batch", "samples"))
FIXED = frozenset({"height", "width"})
SQUARE = {"height": (64, 64, 64), "width": (64, 64, 64)}
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
VIT = {**SMALL, "image_size": 64, "patch_size": 16}
STAGES = {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1], "num_labels": 5}
SWIN = {"image_size": 64, "patch_size": 4, "embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4], "window_size": 4}
CONVOLUTIONS = {"conv_dim": [16] * 3, "conv_kernel": [10, 3, 3], "conv_stride": [5, 2, 2], "num_feat_extract_layers": 3}
SPEECH = {**SMALL, **CONVOLUTIONS, "vocab_size": 32, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4}
CLIP_VISION = {**VIT, "projection_dim": 16}
CLIP_TEXT = {**TEXT, "projection_dim": 16}
RESNET_BACKBONE = {"embedding_size": 8, "hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1],
                   "layer_type": "basic"}  # fmt: skip


def _image(architecture: str, config: str, options: dict[str, Any], any_size: bool = False, name: str = "",
           **fields: Any) -> Entry:  # fmt: skip
    size: dict[str, Any] = {} if any_size else {"sizes": SQUARE, "fixed": FIXED}
    return entry(architecture, config, options, (PIXELS,), "multimodal", name, **{**size, **fields})


def _speech(architecture: str, config: str, options: dict[str, Any]) -> Entry:
    return entry(architecture, config, options, (WAVE,), "multimodal")


def _features(architecture: str, config: str, options: dict[str, Any], *inputs: Input, **fields: Any) -> Entry:
    return entry(architecture, config, options, inputs, "multimodal", **fields)


def _pair(architecture: str, config: str, text: dict[str, Any], vision: dict[str, Any], **options: Any) -> Entry:
    arguments = {"text_config": text, "vision_config": vision, **options}
    return entry(architecture, config, arguments, (IDS, PIXELS, MASK), "multimodal", sizes=SQUARE, fixed=FIXED)


ENTRIES = (
    _image("ViTForImageClassification", "ViTConfig", VIT),
    _image("DeiTForImageClassification", "DeiTConfig", VIT),
    _image("BeitForImageClassification", "BeitConfig", {**VIT, "use_relative_position_bias": True}),
    _image("Dinov2Model", "Dinov2Config", {**VIT, "patch_size": 8}),
    _image("Dinov2WithRegistersModel", "Dinov2WithRegistersConfig", {**VIT, "patch_size": 8}, opset=18),
    _image("Dinov2Model", "Dinov2Config", {**VIT, "patch_size": 8}, True, "Dinov2Model_any_size"),
    _image("DINOv3ViTModel", "DINOv3ViTConfig", VIT),
    _image("ViTMSNModel", "ViTMSNConfig", VIT),
    _image("IJepaModel", "IJepaConfig", VIT),
    _image("Data2VecVisionModel", "Data2VecVisionConfig", VIT),
    _image("VitDetModel", "VitDetConfig", {**VIT, "window_size": 2, "window_block_indices": [0]}),
    _image("HieraModel", "HieraConfig", {"embed_dim": 16, "image_size": [64, 64], "depths": [1, 1],
                                         "num_heads": [1, 2], "embed_dim_multiplier": 2.0, "num_query_pool": 1}),
    _image("SwinModel", "SwinConfig", SWIN),
    _image("SwinModel", "SwinConfig", SWIN, True, "SwinModel_any_size"),
    _image("Swinv2Model", "Swinv2Config", SWIN),
    _image("Swin2SRForImageSuperResolution", "Swin2SRConfig", {**SWIN, "patch_size": 1, "image_size": 32, "upscale": 2},
           sizes={"height": (32, 32, 32), "width": (32, 32, 32)}),
    _image("ResNetForImageClassification", "ResNetConfig", RESNET_BACKBONE, True),
    _image("ConvNextModel", "ConvNextConfig", STAGES, True),
    _image("ConvNextV2Model", "ConvNextV2Config", STAGES, True),
    _image("RegNetModel", "RegNetConfig", {"embedding_size": 8, "hidden_sizes": [8, 16, 24, 32],
                                           "depths": [1, 1, 1, 1], "groups_width": 4}, True),
    _image("MobileNetV1Model", "MobileNetV1Config", {"depth_multiplier": 0.25}, True),
    _image("MobileNetV2Model", "MobileNetV2Config", {"depth_multiplier": 0.35}, True),
    _image("MobileViTModel", "MobileViTConfig", {"image_size": 64}),
    _image("MobileViTV2Model", "MobileViTV2Config", {"width_multiplier": 0.5}, True, opset=18),
    _image("EfficientNetModel", "EfficientNetConfig", {"width_coefficient": 0.5, "depth_coefficient": 0.5,
                                                     "hidden_dim": 640}, True),
    _image("BitModel", "BitConfig", {**RESNET_BACKBONE, "layer_type": "preactivation", "num_groups": 4}, True),
    _image("PoolFormerModel", "PoolFormerConfig", STAGES, True),
    _image("PvtV2Model", "PvtV2Config", {**STAGES, "num_attention_heads": [1, 2, 3, 4]}, True),
    _image("CvtModel", "CvtConfig", {"embed_dim": [16, 32, 48], "num_heads": [1, 2, 3], "depth": [1, 1, 1]}, True),
    _image("LevitModel", "LevitConfig", {"image_size": 64, "hidden_sizes": [16, 24, 32], "depths": [1, 1, 1],
                                         "num_attention_heads": [2, 3, 4], "key_dim": [8, 8, 8]}),
    _image("FocalNetModel", "FocalNetConfig", {"image_size": 64, "embed_dim": 16, "depths": [1, 1],
                                               "focal_levels": [2, 2], "focal_windows": [3, 3]}),
    _image("SegformerForSemanticSegmentation", "SegformerConfig", {
        "hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1], "num_attention_heads": [1, 2, 3, 4],
        "decoder_hidden_size": 16, "num_labels": 5}, True),
    _image("GLPNForDepthEstimation", "GLPNConfig", {
        "hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1], "num_attention_heads": [1, 2, 3, 4],
        "decoder_hidden_size": 16}, True),
    _image("DPTForDepthEstimation", "DPTConfig", {
        **VIT, "num_hidden_layers": 4, "backbone_out_indices": [0, 1, 2, 3],
        "neck_hidden_sizes": [8, 8, 16, 16], "fusion_hidden_size": 16}),
    _image("DepthAnythingForDepthEstimation", "DepthAnythingConfig", {
        "backbone_config": {"model_type": "dinov2", **SMALL, "image_size": 64, "patch_size": 8,
                            "num_hidden_layers": 4, "out_indices": [1, 2, 3, 4], "reshape_hidden_states": False},
        "patch_size": 8, "reassemble_hidden_size": 32, "neck_hidden_sizes": [8, 8, 16, 16], "fusion_hidden_size": 16,
        "head_hidden_size": 8}),
    _image("YolosForObjectDetection", "YolosConfig", {**VIT, "image_size": [64, 64], "num_detection_tokens": 10}),
    _image("DetrForObjectDetection", "DetrConfig", {
        "use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None,
        "backbone_config": {"model_type": "resnet", **RESNET_BACKBONE, "out_features": ["stage4"]},
        "d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 4,
        "decoder_attention_heads": 4, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "num_queries": 10}, True),
    _image("DeformableDetrForObjectDetection", "DeformableDetrConfig", {
        "use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None,
        "backbone_config": {"model_type": "resnet", **RESNET_BACKBONE,
                            "out_features": ["stage2", "stage3", "stage4"]},
        "d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 4,
        "decoder_attention_heads": 4, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "num_queries": 10,
        "num_feature_levels": 3}),
    _image("RTDetrForObjectDetection", "RTDetrConfig", {
        "backbone_config": {"model_type": "rt_detr_resnet", **RESNET_BACKBONE,
                            "out_features": ["stage2", "stage3", "stage4"]},
        "encoder_in_channels": [16, 24, 32], "encoder_hidden_dim": 32, "d_model": 32, "encoder_ffn_dim": 32,
        "decoder_ffn_dim": 32, "decoder_layers": 1, "num_queries": 10, "decoder_in_channels": [32, 32, 32],
        "encoder_attention_heads": 4, "decoder_attention_heads": 4}),
    _image("SamVisionModel", "SamVisionConfig", {**VIT, "window_size": 3, "global_attn_indexes": [1],
                                                 "output_channels": 16, "mlp_dim": 64}),
    _image("ViTMAEModel", "ViTMAEConfig", {**VIT, "mask_ratio": 0.0}),
    _features("TimesformerModel", "TimesformerConfig", {**VIT, "num_frames": 4},
              Input("pixel_values", ("batch", 4, 3, 64, 64))),
    _features("VideoMAEModel", "VideoMAEConfig", {**VIT, "num_frames": 4}, Input("pixel_values",
                                                                               ("batch", 4, 3, 64, 64))),
    _features("VivitModel", "VivitConfig", {**VIT, "num_frames": 4}, Input("pixel_values", ("batch", 4, 3, 64, 64))),
    _pair("CLIPModel", "CLIPConfig", CLIP_TEXT, CLIP_VISION, projection_dim=16),
    _pair("SiglipModel", "SiglipConfig", {**TEXT, "projection_size": 32}, VIT),
    _pair("ChineseCLIPModel", "ChineseCLIPConfig", CLIP_TEXT, CLIP_VISION, projection_dim=16),
    _pair("GroupViTModel", "GroupViTConfig", CLIP_TEXT, {
        **CLIP_VISION, "depths": [1, 1, 0], "num_hidden_layers": 2, "num_group_tokens": [8, 4, 0],
        "num_output_groups": [8, 4, 0]}, projection_dim=16),
    _pair("BlipForImageTextRetrieval", "BlipConfig", {**CLIP_TEXT, "encoder_hidden_size": 32}, CLIP_VISION),
    _features("ViltModel", "ViltConfig", {**TEXT, **VIT}, IDS, PIXELS, MASK, sizes=SQUARE, fixed=FIXED),
    _features("OwlViTForObjectDetection", "OwlViTConfig", {
        "text_config": {**CLIP_TEXT, "max_position_embeddings": 40}, "vision_config": CLIP_VISION,
        "projection_dim": 16}, IDS, PIXELS, MASK, sizes={**SQUARE, "batch": (1, 1, 1)},
        fixed=frozenset({"height", "width", "batch"})),
    _speech("Wav2Vec2ForCTC", "Wav2Vec2Config", SPEECH),
    _speech("Wav2Vec2Model", "Wav2Vec2Config", {**SPEECH, "feat_extract_norm": "layer",
                                                "do_stable_layer_norm": True}),
    _speech("HubertModel", "HubertConfig", SPEECH),
    _speech("WavLMModel", "WavLMConfig", SPEECH),
    _speech("UniSpeechModel", "UniSpeechConfig", SPEECH),
    _speech("UniSpeechSatModel", "UniSpeechSatConfig", SPEECH),
    _speech("Data2VecAudioModel", "Data2VecAudioConfig", {**SPEECH, "conv_pos_kernel_size": 3}),
    _speech("SEWModel", "SEWConfig", {**SPEECH, "squeeze_factor": 2}),
    _speech("SEWDModel", "SEWDConfig", {**SPEECH, "squeeze_factor": 2, "position_buckets": 16}),
    _features("Wav2Vec2ConformerModel", "Wav2Vec2ConformerConfig", {
        **SPEECH, "position_embeddings_type": "rotary", "conv_depthwise_kernel_size": 3}, WAVE),
    _features("Wav2Vec2BertModel", "Wav2Vec2BertConfig", {
        **SMALL, "feature_projection_input_dim": 16, "left_max_position_embeddings": 8,
        "right_max_position_embeddings": 8, "conv_depthwise_kernel_size": 3},
        Input("input_features", ("batch", "frames", 16))),
    _features("ASTModel", "ASTConfig", {**SMALL, "num_mel_bins": 16, "max_length": 32, "patch_size": 8,
                                        "frequency_stride": 8, "time_stride": 8},
              Input("input_values", ("batch", 32, 16))),
    _features("WhisperModel", "WhisperConfig", {
        "vocab_size": 100, "num_mel_bins": 8, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2,
        "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64,
        "max_source_positions": 20, "max_target_positions": 40, "pad_token_id": 0, "bos_token_id": 1,
        "eos_token_id": 2, "decoder_start_token_id": 1},
        Input("input_features", ("batch", 8, 40)), TARGET_IDS, constants={"use_cache": False}),
    _features("Speech2TextModel", "Speech2TextConfig", {
        "vocab_size": 100, "input_feat_per_channel": 8, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2,
        "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64,
        "max_source_positions": 64, "max_target_positions": 64, "conv_channels": 16},
        Input("input_features", ("batch", "frames", 8)), TARGET_IDS, constants={"use_cache": False}),
    _features("MoonshineModel", "MoonshineConfig", {
        "vocab_size": 100, "hidden_size": 32, "intermediate_size": 64, "encoder_num_hidden_layers": 2,
        "decoder_num_hidden_layers": 2, "encoder_num_attention_heads": 4, "decoder_num_attention_heads": 4},
        WAVE, TARGET_IDS, constants={"use_cache": False}),
    _features("EncodecModel", "EncodecConfig", {
        "num_filters": 4, "hidden_size": 16, "codebook_size": 32, "codebook_dim": 16, "upsampling_ratios": [4, 2],
        "num_lstm_layers": 1}, Input("input_values", ("batch", 1, "samples"))),
    _features("DacModel", "DacConfig", {
        "encoder_hidden_size": 8, "downsampling_ratios": [2, 4], "decoder_hidden_size": 32, "n_codebooks": 2,
        "codebook_size": 32, "codebook_dim": 4}, Input("input_values", ("batch", 1, "samples"))),
    _features("UnivNetModel", "UnivNetConfig", {
        "model_in_channels": 8, "model_hidden_channels": 8, "num_mel_bins": 8, "resblock_kernel_sizes": [3],
        "resblock_stride_sizes": [4], "resblock_dilation_sizes": [[1, 3]]},
        Input("input_features", ("batch", 20, 8), uniform), Input("noise_sequence", ("batch", 20, 8))),
)  # fmt: skip
