"""What fewer bits cost: the same texts, read and answered with and without."""
