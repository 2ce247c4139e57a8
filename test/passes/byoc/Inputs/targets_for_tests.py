"""Pattern tables of targets that exist in tests only."""

from mirlo.extend.codegen import (
    CodeGenerator,
    contraction,
    conv_bias_activation,
    elementwise_prim,
    is_call_tir,
    is_const,
    is_op,
    maybe,
    pattern_table,
    wildcard,
)
from mirlo.extend.target import Target, register_target


@pattern_table("fuser")
def fuser():
    """Convolutions with bias and relu, in this order of preference."""
    return [
        ("conv_bias_relu", conv_bias_activation(bias=True, activation="relax.relu")),
        ("conv", conv_bias_activation(bias=False, activation=False)),
    ]


@pattern_table("one")
def one():
    return [("relu", is_op("relax.relu")(wildcard())), ("add", is_op("relax.add")(wildcard(), wildcard()))]


@pattern_table("two")
def two():
    return [("tanh", is_op("relax.tanh")(wildcard())), ("multiply", is_op("relax.multiply")(wildcard(), wildcard()))]


@pattern_table("greedy")
def greedy():
    """One operator more than others take at once."""
    return [("tanh_relu", is_op("relax.relu")(is_op("relax.tanh")(wildcard())))]


@pattern_table("relus")
def relus():
    """Convolutions followed by an optional addition and a relu."""
    conv = is_op("relax.conv")(weight=is_const(), bias=maybe(is_const()))
    return [
        ("conv_add_relu", is_op("relax.relu")(is_op("relax.add")(conv, wildcard()))),
        ("conv_relu", is_op("relax.relu")(conv)),
    ]


class Ohwi(CodeGenerator):
    """Takes convolutions, channels last, kernels with the out channels first; leaves the code to Mirlo."""

    name = "ohwi"
    layouts = {"relax.conv": ("N*C", "O*I")}
    pipeline = "convert-layout,hoist-layouts,fold-constant,remove-dead"

    def patterns(self):
        return relus()


register_target(Target("ohwi", "convolutions in a layout of its own", codegen=Ohwi))


class Padder(CodeGenerator):
    """Takes scaled convolutions of padded images."""

    name = "padder"
    layouts = {"relax.conv": ("N*C", "O*I")}
    pipeline = "convert-layout,hoist-layouts,fold-constant,remove-dead"

    def patterns(self):
        conv = is_op("relax.conv")(is_op("relax.pad")(wildcard(), ...), is_const())
        return [("scaled", is_op("relax.multiply")(conv, is_const()))]


register_target(Target("padder", "scaled convolutions of padded images", codegen=Padder))


@pattern_table("tensorizer")
def tensorizer():
    """Products of loops that have the sizes of an instruction, whatever operator they come from."""
    product = contraction(
        wildcard(), wildcard(), axes="mk,kn->mn", dtype="f32", multiples={"m": 4}, extents={"k": 8}, epilogue=True
    )
    return [
        ("product_relu", elementwise_prim(product, ops={"arith.maximumf"})),
        ("product", product),
    ]


@pattern_table("convolver")
def convolver():
    return [("window", contraction(wildcard(), wildcard(), sum_dtype="f32"))]


@pattern_table("named")
def named():
    return [("any", is_call_tir("matmul*"))]
