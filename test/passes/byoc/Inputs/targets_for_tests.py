"""Pattern tables of targets that exist in tests only."""

from mirlo.extend import (
    conv_bias_activation,
    is_op,
    pattern_table,
    wildcard,
)


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
