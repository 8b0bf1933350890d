"""What would have happened to each logged episode under another policy."""
