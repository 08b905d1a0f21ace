"""Several machines: what is sent to other processes, by what, and what becomes of a lost one.

Encoders and local language models can be replaced by stand-ins with the same identity
(:mod:`ragassay.cluster.remote`), which send parts of texts and of requests to a
:class:`ragassay.cluster.pool.Pool` of workers. Caches, the run folder and every decision stay
in the process that asks. :mod:`ragassay.cluster.ray_workers` starts the workers with Ray;
nothing else here knows Ray.
"""
