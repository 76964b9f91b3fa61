# Types for the compiled form of dispatch.py; the module runs without it, slower.

cimport cython

from oncelog.client.accumulator cimport Accumulator, PartitionQueue
from oncelog.client.batch cimport ProducerBatch
from oncelog.client.fates cimport Fates
from oncelog.client.idempotence cimport Idempotence
from oncelog.client.metadata_cache cimport MetadataCache
from oncelog.client.network cimport Network
from oncelog.client.node_ring cimport NodeRing


cdef class ProduceTag:
    cdef readonly object node_id
    cdef readonly long long count
    cdef dict _batches

    @cython.locals(found=dict)
    cpdef dict of_topic(self, object topic)


cdef class Dispatch:
    cdef int _acks
    cdef int _codec
    cdef object _level
    cdef long long _linger_ms
    cdef long long _max_in_flight
    cdef long long _max_request_size
    cdef object _request_timeout_ms
    cdef Accumulator _accumulator
    cdef Network _network
    cdef Idempotence _idempotence
    cdef MetadataCache _metadata
    cdef object _counters
    cdef Fates _fates
    cdef dict _rings
    cdef dict _under_way

    @cython.locals(ring=NodeRing)
    cpdef object send_ready(self, object now_ms, bint is_urgent)
    cpdef object _serve(self, object node_id, NodeRing ring, object now_ms, bint is_urgent)
    @cython.locals(head=ProducerBatch)
    cpdef bint send_alone(self, object node_id, PartitionQueue queue, object now_ms) except -1
    cpdef bint may_send(self, PartitionQueue queue, ProducerBatch batch, object now_ms) except -1

    @cython.locals(queue=PartitionQueue, batch=ProducerBatch)
    cpdef object send(self, object node_id, list drained, object now_ms)
    cpdef bint _prepare(self, PartitionQueue queue, ProducerBatch batch) except -1

    @cython.locals(
        queue=PartitionQueue, batch=ProducerBatch, topics=dict, partitions=list, records="long long",
        wire_bytes="long long", raw_bytes="long long", queued_ms="long long", most_bytes="long long",
        longest_ms="long long", size_bytes="long long", waited_ms="long long",
    )
    cpdef list _sealed(self, list drained, bint is_transactional, object now_ms)
