"""Review by experts: what they say about stays, recorded so that it can be trusted and compared.

A stay is an episode of the audit that is under review.
"""
