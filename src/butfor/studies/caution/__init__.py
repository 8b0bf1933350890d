"""What caution does to the true value of plans."""
