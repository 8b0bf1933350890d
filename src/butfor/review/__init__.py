"""Review by people: what they say about stays, kept so that it can be trusted and compared."""
