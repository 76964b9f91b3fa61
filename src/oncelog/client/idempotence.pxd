# Types for the compiled form of idempotence.py; the module runs without it, slower.

cimport cython

from oncelog.client.accumulator cimport PartitionQueue
from oncelog.client.batch cimport ProducerBatch


cdef class Idempotence:
    cdef public object identity
    cdef public object bump_reason
    cdef public long long bumps
    cdef public bint is_strict
    cdef set _left_open
    cdef bint _needs_new_id

    @cython.locals(first=ProducerBatch, since_oldest="long long")
    cpdef bint may_send(self, PartitionQueue queue, ProducerBatch batch) except -1
    cpdef object number(self, PartitionQueue queue, ProducerBatch batch)

    @cython.locals(batch=ProducerBatch)
    cpdef ProducerBatch next_in_line(self, PartitionQueue queue)
    cpdef object stored(self, PartitionQueue queue, ProducerBatch batch)
