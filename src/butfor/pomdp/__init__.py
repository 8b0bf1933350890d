"""Models with a hidden state: what it is given a log, and counterfactuals that reckon with it."""
