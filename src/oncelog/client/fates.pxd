# Types for the compiled form of fates.py; the module runs without it, slower.

cimport cython

from oncelog.client.accumulator cimport Accumulator, PartitionQueue
from oncelog.client.batch cimport ProducerBatch
from oncelog.client.idempotence cimport Idempotence
from oncelog.client.metadata_cache cimport MetadataCache


cdef class Fates:
    cdef object _config
    cdef int _codec
    cdef object _level
    cdef Accumulator _accumulator
    cdef Idempotence _idempotence
    cdef MetadataCache _metadata
    cdef object _counters
    cdef object _jitter
    cdef object _on_settled
    cdef dict _untold
    cdef object _warning
    cdef public object transaction
    cdef public object journal
    cdef public object fatal
    cdef public bint has_news

    @cython.locals(base_offset="long long")
    cpdef object judge(self, PartitionQueue queue, ProducerBatch batch, object answer, object now_ms)

    @cython.locals(first=ProducerBatch)
    cpdef object store(self, PartitionQueue queue, ProducerBatch batch, long long base_offset, long long append_time_ms)
    cpdef object _finish(self, PartitionQueue queue, ProducerBatch batch)
    cpdef object _tell(self, PartitionQueue queue, ProducerBatch batch)
    cpdef object _settle_journal(self, ProducerBatch batch)


@cython.locals(one=ProducerBatch)
cpdef bint _has_untold_ahead(PartitionQueue queue, ProducerBatch batch) except -1
