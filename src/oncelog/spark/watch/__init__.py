"""How far streaming queries are: lag, rows and times of each, for programs, `oncelog run` and Prometheus.

Spark's own Kafka source puts its lag into `sources[].metrics` of a query's progress. A source in Python cannot: Spark
asks it for offsets only. So the numbers are computed from those offsets (`lag`), which a listener hands over that
`register` installs (`listener`), are kept for each query (`queries`), and served as a page (`endpoint`).
"""
