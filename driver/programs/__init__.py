"""Models that work on objects: cut into host functions and parts that are compiled."""
