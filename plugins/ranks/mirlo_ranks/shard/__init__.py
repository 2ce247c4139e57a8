"""Sharding of a model among ranks: each rank's part of every tensor, and collectives between ranks."""
