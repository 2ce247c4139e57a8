"""Models on several ranks: the options of `mirlo.compile`, the pass `shard`, and the code generator `collectives`."""
