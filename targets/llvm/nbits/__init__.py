"""Products with weights of 2, 4 and 8 bits that stay packed in memory."""
