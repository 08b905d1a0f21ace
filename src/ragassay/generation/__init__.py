"""Language models: back ends, the client that gathers and joins requests, and the cache.

Every request goes through :class:`ragassay.generation.gather.ModelClient`, which asks
:class:`ragassay.generation.cache.GenerationCache` first. The back ends (``openai``, ``hf``,
``scripted``) are plug-ins and know nothing of either. Nothing heavy is imported here.
"""
