"""Speculative decoding: drafters guess tokens, the model verifies them, a rule accepts them."""
