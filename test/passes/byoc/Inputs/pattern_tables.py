"""Pattern tables for the lit tests of the pattern language: a target for each feature."""

from mirlo.dialects.relax import OPS
from mirlo.extend.codegen import (
    conv_bias_activation,
    is_const,
    is_op,
    is_var,
    matmul_bias_activation,
    maybe,
    pattern_table,
    repeat,
    rewriter,
    same_shape_as,
    several,
    wildcard,
)
from mirlo.extend.rules import decline

relu, tanh, exp, add = (is_op(f"relax.{name}") for name in ("relu", "tanh", "exp", "add"))
x = wildcard().named("x")


def table(name, *rows):
    """Register a table of rows that need nothing at run time."""
    pattern_table(name)(lambda: rows)


# What a single value must look like.
table("attr", ("conv", is_op("relax.conv").has_attr(strides=(2, 2), groups=1)))
table("attr-set", ("conv", is_op("relax.conv").has_attr(groups={2, 4})))
table("attr-predicate", ("conv", is_op("relax.conv").has_attr(groups=lambda n: n % 4 == 0 or decline("no 4", n=n))))
table("dtype", ("add", add(wildcard().has_dtype("f16"), wildcard())))
table("shape", ("exp", exp(wildcard().has_shape([None, "n", 4]))))
table("rank", ("exp", exp.has_rank(2)))
table("const", ("mul", is_op("relax.multiply")(wildcard(), is_const())))
table("const-value", ("mul", is_op("relax.multiply")(wildcard(), is_const(2.0))))
table("var", ("exp", exp(is_var())))
table("var-name", ("exp", exp(is_var("image"))))
table("operand-name", ("conv", is_op("relax.conv")(bias=is_const())))
table("operand-absent", ("conv", is_op("relax.conv")(weight=is_const(), bias=maybe(is_const()))))
table("result", ("relu", relu(is_op("relax.split").result(1).output())))
table("where", ("conv", is_op("relax.conv").where(lambda op: op.x.type.shape[1] > 3 or "too few channels", "wide")))
table(
    "packed",
    ("fast", is_op("relax.call_dps_packed").has_attr(function="fast_exp")),
    ("effects", is_op("relax.call_packed")),
)

# How values hang together.
table("alternatives", ("act", is_op("relax.relu", "relax.tanh")(add(wildcard(), wildcard()) | exp(wildcard()))))
table("optional", ("exp", exp(wildcard()).optional(relu).optional(tanh)))
table("both", ("exp", exp(wildcard()) & wildcard().has_rank(2)))
table("not", ("relu", relu(~exp(wildcard()))))
table("chain", ("chain", repeat(exp(wildcard()), lambda v: is_op("relax.relu", "relax.tanh")(v), least=1, most=3)))
table("commutative", ("add", add(exp(wildcard()), relu(wildcard()))))
table("ordered", ("add", add(exp(wildcard()), relu(wildcard())).ordered()))
table("unordered", ("concat", is_op("relax.concat")(exp(wildcard()), relu(wildcard()), tanh(wildcard())).unordered()))
table("variadic", ("concat", is_op("relax.concat")(exp(wildcard()), ...)))
table("same-value", ("square", is_op("relax.multiply")(x, x)))
table("diamond", ("diamond", add(relu(exp(x).named("top")), tanh(exp(x).named("top")))))
table("outputs", ("pair", several(relu(x), tanh(x))))
table("fork", ("fork", several(exp.fork_to(relu, tanh))))
table("used-by", ("pair", several(exp.used_by(add, 1))))
table("only-used-by", ("pair", several(exp >> relu >> tanh)))
table("inner-output", ("pair", relu(exp(wildcard()).output())))
table("cross", ("pair", several(add(x, wildcard()).ordered(), is_op("relax.multiply")(x, wildcard()).ordered())))
table("leak", ("long", relu(exp(wildcard()))))
table("check", ("add", add(wildcard().named("a"), wildcard().named("b")), same_shape_as("a", "b")))
table(
    "helpers", ("conv", conv_bias_activation()), ("matmul", matmul_bias_activation(bias=True, activation="relax.gelu"))
)

# Priorities: what comes first takes nodes away from what comes later.
table("first-wins", ("long", relu(exp(wildcard()))), ("short", exp(wildcard())), ("relu", relu(wildcard())))
table("short-first", ("short", exp(wildcard())), ("long", relu(exp(wildcard()))))

# Mistakes.
table("twice", ("add", add((lambda v: relu(v))(shared := wildcard()), tanh(shared))))
table("typo", ("conv", is_op("relax.conf")))
table("typo-attr", ("conv", is_op("relax.conv").has_attr(stride=(1, 1))))
table("typo-operand", ("conv", is_op("relax.conv")(weigth=is_const())))
table("row", ("conv", "relax.conv"))
table("raises", ("exp", exp.where(lambda op: 1 / 0, "bad")))
table("silent", ("exp", exp.where(lambda op: None, "mute")))
pattern_table("unconnected")(lambda: [("pair", several(relu, tanh))])
table("empty")


@rewriter(add(wildcard().named("a"), is_op("relax.negative")(wildcard().named("b"))), name="subtract")
def subtract(match, b):
    """Rewrite a + -b to a - b; addition commutes."""
    return b.emit(OPS["subtract"], match["a"], match["b"])


@rewriter(exp(is_op("relax.log")(wildcard().named("x")).named("log")), name="exp-log")
def exp_of_log(match, b):
    """Match only where the logarithm has no other use."""
    if len(match["log"].users) > 1:
        return decline("the logarithm is needed elsewhere")
    return match["x"]


@rewriter(relu(wildcard()).named("r"), name="forever")
def forever(match, b):
    """Match the result of this very rewrite."""
    return b.emit(OPS["relu"], match["r"].mlir)


@rewriter(several(relu(x).named("r"), tanh(x).named("t")), name="pair")
def pair(match, b):
    """Match two outputs at once."""
    made = b.emit(OPS["exp"], match["x"].mlir)
    return {"r": made, "t": b.emit(OPS["negative"], made)}


table("splits", ("split", is_op("relax.split")))
