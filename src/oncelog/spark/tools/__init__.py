"""Stream tools: plain functions from DataFrames to DataFrames, for streams and batches alike.

Each checks what it is given before Spark sees it, keeps the columns that it does not talk about, and says in its
documentation how much state it keeps.
"""

from __future__ import annotations

from oncelog.spark.tools.avro_values import decode_avro, encode_avro
from oncelog.spark.tools.columns import BadArgument
from oncelog.spark.tools.dead_letters import dead_letter_split
from oncelog.spark.tools.duplicates import deduplicate
from oncelog.spark.tools.json_values import decode_json, encode_json
from oncelog.spark.tools.ordering import latest_version, reject_out_of_order

__all__ = [
    "BadArgument",
    "dead_letter_split",
    "decode_avro",
    "decode_json",
    "deduplicate",
    "encode_avro",
    "encode_json",
    "latest_version",
    "reject_out_of_order",
]
