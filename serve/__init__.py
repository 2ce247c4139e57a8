"""A server for models: OpenAI's API for language models, the Open Inference Protocol for any compiled model.

`mirlo serve` runs it; `application` returns it as an application of ASGI for a server of yours.
"""
