"""Charts of experiments over many logs, and the diagrams of the articles."""
