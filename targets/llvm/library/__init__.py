"""Libraries: models as object files that C programs link or open, with headers and build files."""
