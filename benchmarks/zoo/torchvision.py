"""Models of torchvision, with fewer layers, channels and classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .entry import STATIC, TORCHSCRIPT, Entry, Input, uniform
from .export import flat
from .vision_ops import load

IMAGE = Input("image", ("batch", 3, "height", "width"))
FIXED = frozenset({"height", "width"})
SQUARE = {"height": (64, 64, 64), "width": (64, 64, 64)}
INCEPTION = {"height": (96, 96, 96), "width": (96, 96, 96)}


def _model(name: str, **options: Any) -> Callable[[], Any]:
    def make() -> Any:
        models = load().models
        return getattr(models, name)(weights=None, **{"num_classes": 10, **options})

    return make


def _vgg(name: str) -> Callable[[], Any]:
    """Return a VGG whose classifier has 256 channels instead of 4,096, after a mean over the image.

    TorchScript exports a mean over windows only where it divides a size that is known.
    """

    def make() -> Any:
        import torch

        model = _model(name)()
        model.avgpool = torch.nn.AdaptiveAvgPool2d((1, 1))
        model.classifier[0], model.classifier[3] = torch.nn.Linear(512, 256), torch.nn.Linear(256, 256)
        model.classifier[6] = torch.nn.Linear(256, 10)
        return model

    return make


def _alexnet() -> Any:
    """Return an AlexNet whose classifier has 256 channels instead of 4,096, after a mean over the image."""
    import torch

    model = _model("alexnet")()
    model.avgpool = torch.nn.AdaptiveAvgPool2d((1, 1))
    model.classifier[1], model.classifier[4] = torch.nn.Linear(256, 256), torch.nn.Linear(256, 256)
    model.classifier[6] = torch.nn.Linear(256, 10)
    return model


def _resnet(block: str, layers: tuple[int, ...] = (1, 1, 1, 1), **options: Any) -> Callable[[], Any]:
    def make() -> Any:
        resnet = load().models.resnet
        return resnet.ResNet(getattr(resnet, block), list(layers), num_classes=10, **options)

    return make


def _densenet() -> Any:
    return load().models.DenseNet(growth_rate=16, block_config=(2, 3, 2, 2), num_init_features=32, num_classes=10)


def _vit() -> Any:
    return load().models.VisionTransformer(64, 16, 2, 4, 64, 128, num_classes=10)


def _swin(version: int) -> Callable[[], Any]:
    def make() -> Any:
        swin = load().models.swin_transformer
        block = {} if version == 1 else {
            "block": swin.SwinTransformerBlockV2, "downsample_layer": swin.PatchMergingV2,
        }  # fmt: skip
        return swin.SwinTransformer([4, 4], 24, [2, 2], [2, 4], [4, 4], num_classes=10, **block)

    return make


def _maxvit() -> Any:
    return load().models.MaxVit((64, 64), 16, 2, [16, 32], [1, 1], 8, 0.0, num_classes=10)


def _regnet(**options: Any) -> Callable[[], Any]:
    def make() -> Any:
        regnet = load().models.regnet
        return regnet.RegNet(regnet.BlockParams.from_init_params(depth=4, w_0=16, w_a=16.0, w_m=2.0, group_width=8,
                                                                 **options), num_classes=10)  # fmt: skip

    return make


def _segmentation(name: str, **options: Any) -> Callable[[], Any]:
    def make() -> Any:
        model = getattr(load().models.segmentation, name)(weights=None, weights_backbone=None, num_classes=5, **options)
        return flat(model)

    return make


SCORES = ("cls_logits", "cls_score", "classification_head")
"""Layers that score boxes: with their first weights all scores are nearly the same, and rounding sorts them."""


def _detection(name: str, **options: Any) -> Callable[[], Any]:
    def make() -> Any:
        import torch

        detection = load().models.detection
        options_of_size = {} if name.startswith("ssd") else {"min_size": 96, "max_size": 128}
        model = getattr(detection, name)(weights=None, weights_backbone=None, num_classes=5,
                                         **options_of_size, **options)  # fmt: skip
        with torch.no_grad():
            for part, weights in model.named_parameters():
                if any(head in part for head in SCORES) and part.endswith("weight"):
                    weights.mul_(20)

        class Detector(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.model = model

            def forward(self, image: Any) -> tuple[Any, ...]:
                return tuple(self.model([image])[0].values())

        return Detector()

    return make


def _video(name: str) -> Callable[[], Any]:
    def make() -> Any:
        return getattr(load().models.video, name)(weights=None, num_classes=10)

    return make


def _raft() -> Any:
    model = load().models.optical_flow.raft_small(weights=None)

    import torch

    class Flow(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, first: Any, second: Any) -> Any:
            return self.model(first, second, num_flow_updates=2)[-1]

    return Flow()


def _googlenet() -> Any:
    return load().models.googlenet(weights=None, num_classes=10, aux_logits=False, init_weights=False)


def _inception() -> Any:
    return load().models.inception_v3(weights=None, num_classes=10, aux_logits=False, init_weights=False)


def _any_size(name: str, make: Callable[[], Any], **options: Any) -> Entry:
    return Entry(name, "torchvision", make, (IMAGE,), **options)


def _one_size(name: str, make: Callable[[], Any], size: Any = SQUARE, **options: Any) -> Entry:
    return Entry(name, "torchvision", make, (IMAGE,), sizes=size, fixed=FIXED, **options)


def _detector(name: str, **options: Any) -> Entry:
    image = Input("image", (3, "height", "width"), uniform)
    return Entry(name, "torchvision", _detection(name, **options), (image,), exporters=(TORCHSCRIPT,))


CLIP = Input("clip", ("batch", 3, 8, "height", "width"))
PAIR = (Input("first", ("batch", 3, "height", "width")), Input("second", ("batch", 3, "height", "width")))
FLOW = {"height": (128, 128, 128), "width": (128, 128, 128)}

ENTRIES = (
    _any_size("alexnet", _alexnet),
    _any_size("vgg11", _vgg("vgg11")),
    _any_size("vgg11_bn", _vgg("vgg11_bn")),
    _any_size("resnet18", _model("resnet18")),
    _any_size("resnet_bottleneck", _resnet("Bottleneck")),
    _any_size("resnext", _resnet("Bottleneck", groups=32, width_per_group=4)),
    _any_size("wide_resnet", _resnet("Bottleneck", width_per_group=128)),
    _any_size("resnet_dilated", _resnet("Bottleneck", replace_stride_with_dilation=[False, True, True])),
    _any_size("densenet", _densenet),
    _any_size("squeezenet1_0", _model("squeezenet1_0")),
    _any_size("squeezenet1_1", _model("squeezenet1_1")),
    _any_size("mobilenet_v2", _model("mobilenet_v2", width_mult=0.35)),
    _any_size("mobilenet_v3_small", _model("mobilenet_v3_small")),
    _any_size("mobilenet_v3_large", _model("mobilenet_v3_large")),
    _any_size("mnasnet0_5", _model("mnasnet0_5")),
    _any_size("shufflenet_v2_x0_5", _model("shufflenet_v2_x0_5")),
    _any_size("efficientnet_b0", _model("efficientnet_b0")),
    _any_size("efficientnet_v2_s", _model("efficientnet_v2_s"), shapes=(STATIC,)),
    _any_size("regnet_x", _regnet()),
    _any_size("regnet_y", _regnet(se_ratio=0.25)),
    _any_size("convnext_tiny", _model("convnext_tiny")),
    _any_size("googlenet", _googlenet),
    _one_size("inception_v3", _inception, INCEPTION),
    _one_size("vit", _vit),
    _one_size("swin", _swin(1)),
    _one_size("swin_v2", _swin(2)),
    _any_size("swin_any_size", _swin(1)),
    _one_size("maxvit", _maxvit),
    _any_size("fcn_resnet50", _segmentation("fcn_resnet50")),
    _any_size("deeplabv3_mobilenet_v3_large", _segmentation("deeplabv3_mobilenet_v3_large")),
    _any_size("lraspp_mobilenet_v3_large", _segmentation("lraspp_mobilenet_v3_large")),
    _detector("fasterrcnn_mobilenet_v3_large_320_fpn"),
    _detector("maskrcnn_resnet50_fpn"),
    _detector("keypointrcnn_resnet50_fpn", num_keypoints=4),
    _detector("retinanet_resnet50_fpn"),
    _detector("fcos_resnet50_fpn"),
    _detector("ssdlite320_mobilenet_v3_large"),
    Entry("r3d_18", "torchvision", _video("r3d_18"), (CLIP,)),
    Entry("mc3_18", "torchvision", _video("mc3_18"), (CLIP,)),
    Entry("r2plus1d_18", "torchvision", _video("r2plus1d_18"), (CLIP,)),
    Entry("raft_small", "torchvision", _raft, PAIR, sizes=FLOW, fixed=FIXED),
)
