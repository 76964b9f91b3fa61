"""The native kernel has exactly the types of its twin."""

from oncelog.records._python import BatchBuilder as BatchBuilder
from oncelog.records._python import ConsumerRecord as ConsumerRecord
from oncelog.records._python import RecordCursor as RecordCursor
from oncelog.records._python import RowSource as RowSource
from oncelog.records._python import check_records as check_records
from oncelog.records._python import crc32c as crc32c
from oncelog.records._python import crc_matches as crc_matches
from oncelog.records._python import decode as decode
from oncelog.records._python import decode_part as decode_part
from oncelog.records._python import find_batch as find_batch
from oncelog.records._python import find_newest as find_newest
from oncelog.records._python import find_refused as find_refused
from oncelog.records._python import find_timestamp as find_timestamp
from oncelog.records._python import murmur2 as murmur2
from oncelog.records._python import parse_header as parse_header
from oncelog.records._python import partition_of as partition_of
from oncelog.records._python import renumber as renumber
from oncelog.records._python import scan as scan
from oncelog.records._python import stamp as stamp
from oncelog.records._python import stamp_append_time as stamp_append_time
from oncelog.records._python import stamp_create_time as stamp_create_time
