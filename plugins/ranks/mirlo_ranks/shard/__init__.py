"""Sharding of one model among ranks: the part of each tensor per rank, and the collectives between them."""
