# Types for the compiled form of node_ring.py; the module runs without it, slower.

cimport cython

from oncelog.client.accumulator cimport PartitionQueue
from oncelog.client.batch cimport ProducerBatch


cdef class NodeRing:
    cdef public list queues
    cdef public long long cursor

    @cython.locals(
        queue=PartitionQueue, head=ProducerBatch, drained=list, size_bytes="long long", wake_ms="long long",
        ready_ms="long long", ripening_ms="long long", count="long long", step="long long", at="long long",
    )
    cpdef tuple drain(
        self,
        long long now_ms,
        long long idle_ms,
        long long linger_ms,
        long long max_bytes,
        bint is_urgent,
        long long ripe_bytes,
        object may_send,
        object take,
    )
