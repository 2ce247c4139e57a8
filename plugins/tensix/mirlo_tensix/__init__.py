"""The target `tensix`: products of matrices on a Tensix core of Tenstorrent's Wormhole."""

from mirlo.extend.target import Target

TARGET = Target("tensix", "products of matrices on a Tensix core", codegen="mirlo_tensix.generator:Tensix")
