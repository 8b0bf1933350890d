"""Off-policy evaluation: estimators of one shape, a file a family, and one call for all of them."""
