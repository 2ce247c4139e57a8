"""What schedules of all targets know about blocks: where they stand in loops, what they sum up, what their rows are."""
