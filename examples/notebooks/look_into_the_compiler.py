# %% [markdown]
# # Look into the compiler
#
# Stop after any pass, replace a rule for one compilation, and write a pass.

# %%
from dataclasses import dataclass

import numpy as np

import mirlo
from mirlo import R
from mirlo.extend.ops import compute, elementwise
from mirlo.extend.target import Pass, option, register_pass


def model(x: R.Tensor[("n", 64), R.f32]):
    return R.softmax(R.gelu(x) * 2.0, axis=1)


print(mirlo.script(model))

# %% [markdown]
# A pipeline is a list of passes, which change a module in place. This one stops before kernels are scheduled.

# %%
pipeline = mirlo.Pipeline.named("llvm")
print(pipeline)

# %%
module = mirlo.script(model)
mirlo.Pipeline("simplify,legalize{target=llvm},annotate-kinds,fuse-ops,fuse-tir").run(module)
print(str(module)[:800])

# %% [markdown]
# A rule says what becomes of an operator. This one holds for one compilation: the quick GELU, x * sigmoid(1.702 x).


# %%
def quick_gelu(op, b):
    return elementwise(op, b, [op.x], lambda x: x * compute.sigmoid(1.702 * x))


x = np.random.default_rng(0).standard_normal((5, 64), np.float32)
exact = mirlo.compile(mirlo.script(model))
quick = mirlo.compile(mirlo.script(model), legalize={"relax.gelu": quick_gelu})
difference = np.abs(exact(x) - quick(x)).max()
assert 0 < difference < 1e-2
print(f"the results differ by {difference:.1e}")

# %% [markdown]
# A pass is a class. Its options are checked, and it may stand in any pipeline.


# %%
@register_pass
@dataclass(frozen=True)
class CountOperators(Pass):
    """Print the number of operations of each function."""

    name = "count-operators"
    only: str = option("", "count these alone, such as relax.softmax")

    def run(self, op, session):
        for function in op.regions[0].blocks[0].operations:
            counted = [o for o in function.regions[0].blocks[0].operations if self.only in ("", o.operation.name)]
            print(f"{function.name.value}: {len(counted)}")


mirlo.Pipeline("simplify,count-operators,count-operators{only=relax.softmax}").run(mirlo.script(model))
