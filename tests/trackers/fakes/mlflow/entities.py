from collections import namedtuple

Param = namedtuple("Param", "key value")
Metric = namedtuple("Metric", "key value timestamp step")
