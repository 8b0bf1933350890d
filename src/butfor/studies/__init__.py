"""Studies: published experiments, figure by figure, as articles that anyone can run again."""
