# Types for the compiled form of intake.py; the module runs without it, slower.

cimport cython

from oncelog.client._clock cimport read_ms
from oncelog.client._records cimport kind_of
from oncelog.client.accumulator cimport Accumulator, PartitionQueue, TopicQueues
from oncelog.client.placement cimport Placement


cdef class Intake:
    cdef Accumulator _accumulator
    cdef Placement _placement
    cdef object _clock
    cdef object _send_slowly
    cdef object _callbacks
    cdef object _last_callback
    cdef public object begin_batch
    cdef public bint is_open

    @cython.locals(count="long long")
    cpdef long long send_plain(self, object topic, list outputs) except -1

    @cython.locals(queues=TopicQueues, queue=PartitionQueue, moment_ms="long long")
    cpdef object offer(
        self,
        object topic,
        object value,
        object key,
        object headers,
        object partition,
        object timestamp_ms,
        object on_delivery,
    )
