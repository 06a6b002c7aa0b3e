"""The engine's HTTP face: OpenAI's API, with vLLM's extras. Needs the extra `server`.

`settings` alone is free of FastAPI, so that a command line can be read without it.
"""
