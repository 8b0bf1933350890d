"""One episode, step by step: its layout, its rows, and the template that draws them."""
