"""What makes off-policy evaluation fail: a factorial experiment."""
