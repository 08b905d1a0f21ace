"""Systems under test: how a RAG system of anybody's is asked, and poison put in and taken out.

``http_service`` asks a service, the modules named after LangChain, LlamaIndex and Haystack wrap
pipelines that a function of the user's makes, and ``chroma_store`` and ``qdrant_store`` put a
real vector store behind the built-in pipeline. A class of the user's in a file needs nothing of
this package: see :class:`ragassay.plugins.System`.
"""
