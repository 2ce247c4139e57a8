"""Models of transformers over text: two layers of 32 channels, a vocabulary of 100."""

from __future__ import annotations

from typing import Any

from .entry import TORCHSCRIPT, Entry, Input, integers, mask, normal
from .export import by_name

VOCABULARY = 100
IDS = Input("input_ids", ("batch", "seq"), integers(VOCABULARY, start=3))
MASK = Input("attention_mask", ("batch", "seq"), mask)
TARGET_IDS = Input("decoder_input_ids", ("batch", "target_seq"), integers(VOCABULARY, start=3))

TEXT = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 64, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
GROUPED = {**TEXT, "num_key_value_heads": 2, "head_dim": 8}
EXPERTS = {**GROUPED, "num_local_experts": 4, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
BART = {
    "vocab_size": VOCABULARY, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "max_position_embeddings": 64,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2,
}  # fmt: skip
T5 = {
    "vocab_size": VOCABULARY, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_decoder_layers": 2,
    "num_heads": 4, "pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0,
}  # fmt: skip
GPT2 = {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "bos_token_id": 1,
        "eos_token_id": 2}  # fmt: skip


def build(architecture: str, config: str, options: dict[str, Any]) -> Any:
    """Return a model of transformers with random weights."""
    from .vision_ops import load

    load()
    import transformers

    configuration = getattr(transformers, config)(**options)
    return getattr(transformers, architecture)(configuration)


def entry(architecture: str, config: str, options: dict[str, Any], inputs: tuple[Input, ...], family: str,
          name: str = "", constants: dict[str, Any] | None = None, **fields: Any) -> Entry:  # fmt: skip
    """Return an entry of a model that is called with its inputs by name."""

    def make() -> Any:
        return by_name(build(architecture, config, options), tuple(each.name for each in inputs), **(constants or {}))

    return Entry(name or architecture, family, make, inputs, **fields)


def _encoder(architecture: str, config: str, options: dict[str, Any] = TEXT, name: str = "", inputs: Any = (IDS, MASK),
             **more: Any) -> Entry:  # fmt: skip
    return entry(architecture, config, {**options, **more}, inputs, "transformers", name)


def _decoder(architecture: str, config: str, options: dict[str, Any] = GROUPED, name: str = "",
             inputs: Any = (IDS, MASK), **more: Any) -> Entry:  # fmt: skip
    return entry(architecture, config, {**options, **more}, inputs, "transformers", name, {"use_cache": False})


def _both(architecture: str, config: str, options: dict[str, Any] = BART, **more: Any) -> Entry:
    inputs = (IDS, MASK, TARGET_IDS)
    return entry(architecture, config, {**options, **more}, inputs, "transformers", "", {"use_cache": False})


def _with_cache(architecture: str, config: str, options: dict[str, Any], layers: int, heads: int, width: int) -> Entry:
    """Return a decoder's step: one token, and the keys and values of those before it in and out."""
    caches = tuple(Input(f"{part}_{i}", ("batch", heads, "past", width)) for i in range(layers) for part in ("k", "v"))
    inputs = (Input("input_ids", ("batch", 1), integers(VOCABULARY, start=3)), *caches)

    def make() -> Any:
        import torch
        from transformers.cache_utils import DynamicCache

        model = build(architecture, config, options)

        class Step(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.model = model

            def forward(self, input_ids: Any, *cached: Any) -> tuple[Any, ...]:
                past = DynamicCache(config=self.model.config)
                for i in range(layers):
                    past.update(cached[2 * i], cached[2 * i + 1], i)
                out = self.model(input_ids=input_ids, past_key_values=past, use_cache=True)
                grown = [part for layer in out.past_key_values.layers for part in (layer.keys, layer.values)]
                return (out.logits, *grown)

        return Step()

    return Entry(f"{architecture}_step", "transformers", make, inputs, sizes={"past": (7, 1, 20)},
                 exporters=(TORCHSCRIPT,))  # fmt: skip


ENTRIES = (
    _encoder("BertModel", "BertConfig"),
    _encoder("BertForSequenceClassification", "BertConfig", attn_implementation="eager"),
    _encoder("BertForTokenClassification", "BertConfig", hidden_act="gelu_new"),
    _encoder("BertForQuestionAnswering", "BertConfig"),
    _encoder("BertForMaskedLM", "BertConfig"),
    _encoder("RobertaForSequenceClassification", "RobertaConfig"),
    _encoder("XLMRobertaModel", "XLMRobertaConfig"),
    _encoder("RobertaPreLayerNormModel", "RobertaPreLayerNormConfig"),
    _encoder("CamembertModel", "CamembertConfig"),
    _encoder("ElectraModel", "ElectraConfig", embedding_size=16),
    _encoder("AlbertModel", "AlbertConfig", embedding_size=16),
    _encoder("DistilBertModel", "DistilBertConfig", {
        "vocab_size": VOCABULARY, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64,
        "max_position_embeddings": 64}),
    _encoder("MobileBertModel", "MobileBertConfig", embedding_size=16, true_hidden_size=16,
             intra_bottleneck_size=16),
    _encoder("SqueezeBertModel", "SqueezeBertConfig", embedding_size=32),
    _encoder("MegatronBertModel", "MegatronBertConfig"),
    _encoder("MPNetModel", "MPNetConfig"),
    _encoder("DebertaModel", "DebertaConfig", relative_attention=True, pos_att_type=["c2p", "p2c"]),
    _encoder("DebertaV2Model", "DebertaV2Config", relative_attention=True, pos_att_type=["c2p", "p2c"],
             position_buckets=16, share_att_key=True, norm_rel_ebd="layer_norm"),
    _encoder("RemBertModel", "RemBertConfig", input_embedding_size=16, output_embedding_size=16),
    _encoder("RoFormerModel", "RoFormerConfig", embedding_size=32),
    _encoder("NystromformerModel", "NystromformerConfig", num_landmarks=4, segment_means_seq_len=64),
    _encoder("ConvBertModel", "ConvBertConfig", embedding_size=32),
    _encoder("ErnieModel", "ErnieConfig"),
    _encoder("ErnieForMaskedLM", "ErnieConfig", use_task_id=True),
    _encoder("EsmModel", "EsmConfig", mask_token_id=4, position_embedding_type="rotary"),
    _encoder("FNetModel", "FNetConfig", inputs=(IDS,)),
    _encoder("XLNetModel", "XLNetConfig", {"vocab_size": VOCABULARY, "d_model": 32, "n_layer": 2, "n_head": 4,
                                           "d_inner": 64}),
    _encoder("XLMModel", "XLMConfig", {"vocab_size": VOCABULARY, "emb_dim": 32, "n_layers": 2, "n_heads": 4,
                                       "max_position_embeddings": 64, "pad_token_id": 0}),
    _encoder("FlaubertModel", "FlaubertConfig", {"vocab_size": VOCABULARY, "emb_dim": 32, "n_layers": 2, "n_heads": 4,
                                                 "max_position_embeddings": 64, "pad_token_id": 0}),
    _encoder("FunnelModel", "FunnelConfig", {"vocab_size": VOCABULARY, "d_model": 32, "n_head": 4, "d_head": 8,
                                             "d_inner": 64, "block_sizes": [1, 1]}),
    _encoder("LongformerModel", "LongformerConfig", attention_window=8),
    _encoder("BigBirdModel", "BigBirdConfig", attention_type="original_full"),
    _encoder("CanineModel", "CanineConfig", local_transformer_stride=8, num_hash_buckets=64, num_hash_functions=2),
    _encoder("IBertModel", "IBertConfig"),
    _encoder("LayoutLMModel", "LayoutLMConfig"),
    _encoder("ModernBertModel", "ModernBertConfig", cls_token_id=1, sep_token_id=2, local_attention=8),
    _encoder("EuroBertModel", "EuroBertConfig", GROUPED, mask_token_id=4),
    _encoder("YosoModel", "YosoConfig", use_expectation=True),
    _encoder("SplinterModel", "SplinterConfig"),
    _encoder("MarkupLMModel", "MarkupLMConfig"),
    _encoder("LukeModel", "LukeConfig", entity_vocab_size=50, entity_emb_size=16),
    _encoder("TapasModel", "TapasConfig"),
    _decoder("GPT2LMHeadModel", "GPT2Config", GPT2),
    _decoder("GPT2Model", "GPT2Config", GPT2, "GPT2Model_eager", attn_implementation="eager"),
    _decoder("OpenAIGPTModel", "OpenAIGPTConfig", GPT2),
    _decoder("GPTNeoForCausalLM", "GPTNeoConfig", {
        "vocab_size": VOCABULARY, "hidden_size": 32, "num_layers": 2, "num_heads": 4, "max_position_embeddings": 64,
        "attention_types": [[["global", "local"], 1]], "window_size": 8, "bos_token_id": 1, "eos_token_id": 2}),
    _decoder("GPTNeoXForCausalLM", "GPTNeoXConfig", TEXT),
    _decoder("GPTJForCausalLM", "GPTJConfig", {**GPT2, "rotary_dim": 4}),
    _decoder("GPTBigCodeForCausalLM", "GPTBigCodeConfig", GPT2),
    _decoder("CodeGenForCausalLM", "CodeGenConfig", {**GPT2, "rotary_dim": 4}),
    _decoder("CTRLModel", "CTRLConfig", {**GPT2, "dff": 64}),
    _decoder("BloomForCausalLM", "BloomConfig", {"vocab_size": VOCABULARY, "hidden_size": 32, "n_layer": 2,
                                                 "n_head": 4, "bos_token_id": 1, "eos_token_id": 2}),
    _decoder("OPTForCausalLM", "OPTConfig", {**TEXT, "ffn_dim": 64, "word_embed_proj_dim": 32}),
    _decoder("FalconForCausalLM", "FalconConfig", TEXT, new_decoder_architecture=True, num_kv_heads=2),
    _decoder("FalconForCausalLM", "FalconConfig", TEXT, "FalconForCausalLM_alibi", alibi=True, multi_query=True),
    _decoder("MptForCausalLM", "MptConfig", {"vocab_size": VOCABULARY, "d_model": 32, "n_layers": 2, "n_heads": 4,
                                             "max_seq_len": 64}),
    _decoder("LlamaForCausalLM", "LlamaConfig"),
    _decoder("LlamaModel", "LlamaConfig", name="LlamaModel_eager", attn_implementation="eager"),
    _decoder("MistralForCausalLM", "MistralConfig", sliding_window=8),
    _decoder("MixtralForCausalLM", "MixtralConfig", EXPERTS),
    _decoder("Qwen2ForCausalLM", "Qwen2Config"),
    _decoder("Qwen3ForCausalLM", "Qwen3Config"),
    _decoder("Qwen2MoeForCausalLM", "Qwen2MoeConfig", EXPERTS, shared_expert_intermediate_size=32),
    _decoder("Qwen3MoeForCausalLM", "Qwen3MoeConfig", EXPERTS),
    _decoder("OlmoeForCausalLM", "OlmoeConfig", EXPERTS),
    _decoder("GemmaForCausalLM", "GemmaConfig"),
    _decoder("Gemma2ForCausalLM", "Gemma2Config", sliding_window=8),
    _decoder("Gemma3ForCausalLM", "Gemma3TextConfig", sliding_window=8),
    _decoder("PhiForCausalLM", "PhiConfig", TEXT),
    _decoder("Phi3ForCausalLM", "Phi3Config"),
    _decoder("StableLmForCausalLM", "StableLmConfig", TEXT, num_key_value_heads=4),
    _decoder("Starcoder2ForCausalLM", "Starcoder2Config"),
    _decoder("CohereForCausalLM", "CohereConfig"),
    _decoder("Cohere2ForCausalLM", "Cohere2Config", sliding_window=8),
    _decoder("OlmoForCausalLM", "OlmoConfig"),
    _decoder("Olmo2ForCausalLM", "Olmo2Config"),
    _decoder("GraniteForCausalLM", "GraniteConfig"),
    _decoder("GraniteMoeForCausalLM", "GraniteMoeConfig", EXPERTS),
    _decoder("NemotronForCausalLM", "NemotronConfig"),
    _decoder("PersimmonForCausalLM", "PersimmonConfig", TEXT),
    _decoder("SmolLM3ForCausalLM", "SmolLM3Config"),
    _decoder("HeliumForCausalLM", "HeliumConfig"),
    _decoder("GlmForCausalLM", "GlmConfig"),
    _decoder("BioGptForCausalLM", "BioGptConfig", TEXT),
    _decoder("XGLMForCausalLM", "XGLMConfig", {**BART, "num_layers": 2, "attention_heads": 4, "ffn_dim": 64}),
    _decoder("JetMoeForCausalLM", "JetMoeConfig", EXPERTS, kv_channels=8),
    _decoder("DiffLlamaForCausalLM", "DiffLlamaConfig"),
    _decoder("MambaForCausalLM", "MambaConfig", TEXT, inputs=(IDS,), state_size=8),
    _decoder("Mamba2ForCausalLM", "Mamba2Config", TEXT, inputs=(IDS,), state_size=8, num_heads=8, head_dim=8,
             n_groups=1, chunk_size=8),
    _decoder("RwkvForCausalLM", "RwkvConfig", TEXT, inputs=(IDS,), attention_hidden_size=32),
    _decoder("RecurrentGemmaForCausalLM", "RecurrentGemmaConfig", attention_window_size=16, lru_width=32),
    _decoder("DeepseekV3ForCausalLM", "DeepseekV3Config", EXPERTS, n_routed_experts=4, n_group=2, topk_group=1,
             q_lora_rank=16, kv_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=8,
             first_k_dense_replace=1, num_key_value_heads=4),
    _decoder("GptOssForCausalLM", "GptOssConfig", EXPERTS, sliding_window=8),
    _decoder("DbrxForCausalLM", "DbrxConfig", {
        "vocab_size": VOCABULARY, "d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": 64,
        "ffn_config": {"hidden_size": 32, "ffn_hidden_size": 32, "moe_num_experts": 4, "moe_top_k": 2},
        "attn_config": {"kv_n_heads": 2, "clip_qkv": 8.0, "rope_theta": 10000.0}}),
    _both("BartForConditionalGeneration", "BartConfig"),
    _both("MBartForConditionalGeneration", "MBartConfig"),
    _both("PegasusForConditionalGeneration", "PegasusConfig"),
    _both("BlenderbotForConditionalGeneration", "BlenderbotConfig"),
    _both("MarianMTModel", "MarianConfig"),
    _both("M2M100ForConditionalGeneration", "M2M100Config"),
    _both("PLBartForConditionalGeneration", "PLBartConfig"),
    _both("LEDForConditionalGeneration", "LEDConfig", attention_window=[8, 8], max_encoder_position_embeddings=64,
          max_decoder_position_embeddings=64),
    _both("NllbMoeForConditionalGeneration", "NllbMoeConfig", num_experts=4, encoder_sparse_step=2,
          decoder_sparse_step=2),
    _both("T5ForConditionalGeneration", "T5Config", T5),
    _both("MT5ForConditionalGeneration", "MT5Config", T5),
    _both("LongT5ForConditionalGeneration", "LongT5Config", T5, local_radius=4),
    _both("SwitchTransformersForConditionalGeneration", "SwitchTransformersConfig", T5, num_experts=4),
    _both("ProphetNetForConditionalGeneration", "ProphetNetConfig", {
        "vocab_size": VOCABULARY, "hidden_size": 32, "num_encoder_layers": 2, "num_decoder_layers": 2,
        "num_encoder_attention_heads": 4, "num_decoder_attention_heads": 4, "encoder_ffn_dim": 64,
        "decoder_ffn_dim": 64, "max_position_embeddings": 64}),
    entry("T5EncoderModel", "T5Config", T5, (IDS, MASK), "transformers"),
    _with_cache("GPT2LMHeadModel", "GPT2Config", GPT2, 2, 4, 8),
    _with_cache("LlamaForCausalLM", "LlamaConfig", GROUPED, 2, 2, 8),
    entry("TimeSeriesTransformerModel", "TimeSeriesTransformerConfig", {
        "prediction_length": 4, "context_length": 8, "lags_sequence": [1, 2], "d_model": 32, "encoder_layers": 2,
        "decoder_layers": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "num_time_features": 1},
        (Input("past_values", ("batch", 10)), Input("past_time_features", ("batch", 10, 1)),
         Input("past_observed_mask", ("batch", 10), lambda rng, shape: normal(rng, shape) * 0 + 1),
         Input("future_values", ("batch", 4)), Input("future_time_features", ("batch", 4, 1))), "transformers"),
    entry("PatchTSTForPrediction", "PatchTSTConfig", {
        "num_input_channels": 3, "context_length": 32, "prediction_length": 8, "patch_length": 8, "patch_stride": 8,
        "d_model": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "ffn_dim": 32},
        (Input("past_values", ("batch", 32, 3)),), "transformers"),
    entry("PatchTSMixerForPrediction", "PatchTSMixerConfig", {
        "num_input_channels": 3, "context_length": 32, "prediction_length": 8, "patch_length": 8, "patch_stride": 8,
        "d_model": 32, "num_layers": 2}, (Input("past_values", ("batch", 32, 3)),), "transformers"),
)  # fmt: skip
