"""What `scripts/conformance.py` is made of."""
