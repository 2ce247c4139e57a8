# %% [markdown]
# # Run a model
#
# Compile a model for this CPU, call it with arrays, see where its time goes, and keep the result in a file.

# %%
import tempfile
from pathlib import Path

import numpy as np

import mirlo
from mirlo.tools import samples

# %% [markdown]
# `mobilenetv2` is a graph that ships with Mirlo, with weights from a seed. Any path of an ONNX model works as well, and
# so do modules of PyTorch, functions of JAX and estimators of scikit-learn.

# %%
model = samples.path("mobilenetv2")
classify = mirlo.compile(model)
print(classify.inputs, classify.outputs)
print(classify.memory)

# %% [markdown]
# Arrays are numpy's, or any object with DLPack's methods, by position or by name.

# %%
image = np.random.default_rng(0).standard_normal((1, 3, 224, 224), np.float32)
scores = classify(image)
print(scores.shape, scores.argmax())

# %% [markdown]
# The profile has a row for each kernel, with the nodes of the model that it computes.

# %%
profile = classify.profile(image, repeats=3)
print(profile.table(limit=5))

# %% [markdown]
# Kernels can be read, down to assembly.

# %%
slowest = max(profile, key=lambda row: row.microseconds).symbol
print("\n".join(str(classify.code(slowest)).splitlines()[:12]))

# %% [markdown]
# A `.mirlo` file holds code and weights. Loading it compiles nothing and maps the weights.

# %%
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "mobilenetv2.mirlo"
    classify.save(path)
    again = mirlo.load(path)
    assert np.array_equal(again(image), scores)
    print(f"{path.stat().st_size / 2**20:.1f} MiB")
