"""What compilation costs."""
