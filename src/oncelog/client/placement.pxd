# Types for the compiled form of placement.py; the module runs without it, slower.

cimport cython

from oncelog.client.accumulator cimport PartitionQueue, TopicQueues
from oncelog.records._placing cimport partition_of


cdef class Placement:
    cdef object _user
    cdef object _hash
    cdef bint _is_round_robin
    cdef bint _uses_keys
    cdef bint _is_adaptive
    cdef long long _batch_bytes
    cdef long long _overhead
    cdef object _chance

    @cython.locals(queues=list, sticky="int")
    cpdef PartitionQueue queue_for(self, TopicQueues topic, object partition, object key, object value)
    cpdef int _move_on(self, TopicQueues topic) except -2
