"""Speed, as ratios to slow twins measured in the same run: `make bench`."""
