"""Where a model's results depart from an oracle's: the first node, then the first pass, and a bundle that shows it."""
