"""Which model? Tables of whole states against one distribution per variable."""
