"""Models of timm in their small forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .entry import Entry, Input
from .vision_ops import load

IMAGE = Input("image", ("batch", 3, "height", "width"))


def _model(name: str, options: dict[str, Any]) -> Callable[[], Any]:
    def make() -> Any:
        load()
        import timm

        return timm.create_model(name, pretrained=False, num_classes=10, exportable=True, **options)

    return make


def _any_size(name: str, **options: Any) -> Entry:
    return Entry(name, "timm", _model(name, options), (IMAGE,))


def _one_size(name: str, size: int = 64, **options: Any) -> Entry:
    sizes = {"height": (size,) * 3, "width": (size,) * 3}
    return Entry(name, "timm", _model(name, options), (IMAGE,), sizes=sizes, fixed=frozenset({"height", "width"}))


def _vit(name: str, size: int = 64, **options: Any) -> Entry:
    return _one_size(name, size, img_size=size, depth=2, **options)


ENTRIES = (
    _any_size("resnet10t"),
    _any_size("resnetv2_18"),
    _any_size("seresnet18"),
    _any_size("skresnet18"),
    _any_size("legacy_seresnet18"),
    _any_size("ecaresnet26t"),
    _any_size("resnest14d"),
    _any_size("res2net50_14w_8s"),
    _any_size("dla34"),
    _any_size("densenet121"),
    _any_size("mobilenetv1_100"),
    _any_size("mobilenetv4_conv_small_050"),
    _any_size("mobilenetv4_hybrid_medium"),
    _any_size("lcnet_050"),
    _any_size("ghostnet_050"),
    _any_size("ghostnetv2_100"),
    _any_size("tinynet_e"),
    _any_size("mnasnet_small"),
    _any_size("fbnetc_100"),
    _any_size("hardcorenas_a"),
    _any_size("mixnet_s"),
    _any_size("tf_mixnet_s"),
    _any_size("spnasnet_100"),
    _any_size("efficientnet_lite0"),
    _any_size("tf_efficientnet_b0"),
    _any_size("gc_efficientnetv2_rw_t"),
    _any_size("eca_nfnet_l0"),
    _any_size("nfnet_f0"),
    _any_size("dm_nfnet_f0"),
    _any_size("nf_regnet_b0"),
    _any_size("regnetz_005"),
    _any_size("repvgg_a0"),
    _any_size("repghostnet_050"),
    _any_size("mobileone_s0"),
    _any_size("fastvit_t8"),
    _any_size("convnext_atto"),
    _any_size("convnextv2_atto"),
    _any_size("inception_next_atto"),
    _any_size("cspresnet50"),
    _any_size("cspdarknet53"),
    _any_size("darknetaa53"),
    _any_size("selecsls42b"),
    _any_size("hrnet_w18_small"),
    _any_size("vovnet39a"),
    _any_size("ese_vovnet19b_slim_dw"),
    _any_size("xception41"),
    _any_size("gernet_s"),
    _any_size("rexnet_100"),
    _any_size("edgenext_xx_small"),
    _any_size("starnet_s1"),
    _any_size("poolformer_s12"),
    _any_size("caformer_s18"),
    _any_size("convformer_s18"),
    _any_size("pvt_v2_b0"),
    _any_size("bat_resnext26ts"),
    _any_size("gcresnext26ts"),
    _any_size("botnet26t_256"),
    _any_size("hgnet_tiny"),
    _any_size("hgnetv2_b0"),
    _any_size("focalnet_tiny_srf"),
    _any_size("davit_tiny"),
    _any_size("mambaout_femto"),
    _any_size("rdnet_tiny"),
    _one_size("inception_v4", 96),
    _one_size("halonet26t", 256),
    _one_size("lambda_resnet26t", 64),
    _vit("vit_tiny_patch16_224"),
    _vit("vit_small_patch16_224"),
    _vit("vit_relpos_small_patch16_224"),
    _vit("deit_tiny_patch16_224"),
    _vit("deit_tiny_distilled_patch16_224"),
    _vit("deit3_small_patch16_224"),
    _vit("beit_base_patch16_224", embed_dim=96, num_heads=4),
    _vit("beitv2_base_patch16_224", embed_dim=96, num_heads=4),
    _vit("eva02_tiny_patch14_224", 56),
    _vit("cait_xxs24_224"),
    _vit("xcit_nano_12_p16_224"),
    _vit("vit_small_patch16_rope_224"),
    _vit("samvit_base_patch16_224", embed_dim=96, num_heads=4),
    _one_size("volo_d1_224", 224),
    _one_size("swin_tiny_patch4_window7_224", 56, img_size=56, depths=(1, 1, 2, 1)),
    _one_size("swinv2_tiny_window8_256", 64, img_size=64, depths=(1, 1, 2, 1)),
    _one_size("swinv2_cr_tiny_224", 64, img_size=64, depths=(1, 1, 2, 1), window_size=(2, 2)),
    _one_size("pit_ti_224", 64, img_size=64),
    _one_size("twins_svt_small", 64, img_size=64),
    _one_size("twins_pcpvt_small", 64, img_size=64),
    _one_size("visformer_tiny", 64, img_size=64),
    _one_size("levit_128s", 64, img_size=64),
    _one_size("levit_conv_128s", 64, img_size=64),
    _one_size("coat_lite_tiny", 64, img_size=64),
    _one_size("coat_tiny", 64, img_size=64),
    _one_size("crossvit_tiny_240", 240),
    _one_size("crossvit_9_dagger_240", 240),
    _one_size("mixer_s32_224", 64, img_size=64, num_blocks=2),
    _one_size("resmlp_12_224", 64, img_size=64, num_blocks=2),
    _one_size("gmlp_ti16_224", 64, img_size=64, num_blocks=2),
    _one_size("convit_tiny", 64, img_size=64, depth=11),
    _one_size("tnt_s_legacy_patch16_224", 64, img_size=64, depth=2),
    _one_size("nest_tiny", 64, img_size=64),
    _one_size("nest_small", 64, img_size=64),
    _one_size("sequencer2d_s", 64, img_size=64),
    _one_size("maxvit_rmlp_pico_rw_256", 64, img_size=64),
    _one_size("maxxvit_rmlp_nano_rw_256", 64, img_size=64),
    _one_size("coatnet_pico_rw_224", 64, img_size=64),
    _one_size("coatnext_nano_rw_224", 64, img_size=64),
    _one_size("mvitv2_tiny", 64, img_size=64),
    _one_size("gcvit_xxtiny", 224),
    _one_size("hiera_tiny_224", 224),
    _one_size("efficientformer_l1", 224),
    _one_size("efficientformerv2_s0", 224),
    _one_size("efficientvit_b0", 64),
    _one_size("efficientvit_m0", 224),
    _one_size("mobilevit_xxs", 64),
    _one_size("mobilevitv2_050", 64),
    _one_size("tiny_vit_5m_224", 224),
    _one_size("repvit_m0_9", 64),
    _one_size("swiftformer_xs", 224),
    _one_size("tresnet_m", 64),
)
