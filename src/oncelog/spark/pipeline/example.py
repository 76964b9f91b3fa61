"""A pipeline file with every section, to start from."""

from __future__ import annotations

from typing import Final

EXAMPLE: Final = '''\
# Run it: oncelog run pipeline.toml          Only check it: oncelog run pipeline.toml --check
# Paths are relative to this file.

[pipeline]
name = "billing"                        # its transactions and its checkpoint carry this name
checkpoint = "checkpoints/billing"      # remembers how far it is: keep it
trigger = "processing-time 1 second"    # or "available-now": work off what is there, then end
# master = "spark://host:7077"          # local[*] if left out
# kafka.bootstrap.servers = "h1:9092"   # -b or $ONCELOG_BOOTSTRAP if left out; any kafka.* setting of a client
# spark.sql.shuffle.partitions = 8      # any setting of Spark

[[source]]                              # options are those of format("oncelog"), as of Spark's own Kafka source
name = "orders"
subscribe = "orders"
startingOffsets = "earliest"

# [[source]]                            # a table to join with, in any format that Spark reads
# name = "customers"
# format = "parquet"
# path = "customers/"

[[step]]                                # SQL over sources and earlier steps, by their names
name = "parsed"
sql = """
SELECT CAST(key AS STRING) AS id, from_json(CAST(value AS STRING), 'customer STRING, cents BIGINT') AS o, timestamp
FROM orders
"""

[[step]]
name = "paid"
sql = """
SELECT id AS key, to_json(struct(o.customer, o.cents / 100 AS amount)) AS value
FROM parsed
WHERE o.cents > 0
"""

# [[step]]                              # a function of data frames: def enrich(frame, limit): return frame.where(...)
# name = "rich"
# python = "steps.py:enrich"            # or "package.module:function"
# from = "parsed"                       # the step before it if left out
# with.limit = 10

[[sink]]                                # several sinks run side by side, each at its own pace
name = "paid"
from = "paid"                           # the last step if left out
type = "topic"                          # rows have a column value, perhaps key, headers, partition
topic = "paid"
create = true                           # make the topic if it is not there
partitions = 3
# mode = "idempotent"                   # exactly-once if left out

# [[sink]]
# name = "archive"
# from = "parsed"
# type = "files"
# path = "archive/"

# [[sink]]
# name = "screen"
# from = "parsed"
# type = "console"
'''
