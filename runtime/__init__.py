"""What runs compiled models; it imports nothing of the compiler."""
