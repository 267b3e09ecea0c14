"""A fleet of equal machines tunes together, as tasks of a Dask cluster (``pip install tilewright[cluster]``).

site.py      what a worker does: it builds, runs, and keeps a journal    build_worker.py  the process that builds there
journal.py   measurements on a worker's disk                             processor.py     whom a worker measures for
connection.py  the cluster as the tuner sees it                          measure.py       builder and runner of AutoTVM

No measurement is lost or repeated: a result is written to the worker's disk before it is reported, reported to the
scheduler before its task ends, and a resumed run reads the journals first.
"""

from tilewright.tuning.cluster.measure import ClusterBuilder, ClusterRunner

__all__ = ["ClusterBuilder", "ClusterRunner"]
