"""What requests may say and what answers look like: OpenAI's fields, and vLLM's extras."""
