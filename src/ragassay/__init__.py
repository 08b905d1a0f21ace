"""ragassay: does a RAG system, and its defense, withstand poisoned evidence?"""

__version__ = "0.1.0"
