# Types for the compiled form of batch.py; the module runs without it, slower.

cimport cython

from oncelog.client.delivery cimport Delivery
from oncelog.records._appender cimport Appender


# What every record touches comes first, in one line of the processor's cache.
cdef class ProducerBatch:
    cdef Appender _native
    cdef public Delivery delivery
    cdef public long long size_bytes
    cdef public long long record_count
    cdef public long long charged_bytes
    cdef public list _callbacks
    cdef public list _timestamps_ms
    cdef long long _last_ms
    cdef object _last_timestamp_ms
    cdef public str topic
    cdef public int partition
    cdef public long long created_ms
    cdef public object builder
    cdef object _append
    cdef public bint is_open
    cdef public object buffer
    cdef public long long producer_id
    cdef public int producer_epoch
    cdef public long long position
    cdef public long long ordinal
    cdef public long long attempts
    cdef public long long retry_at_ms
    cdef public bint is_in_flight
    cdef public bint may_be_written
    cdef public bint was_first_in_line
    cdef public bint is_revived
    cdef public bint is_listed
    cdef public bint is_abandoned
    cdef public bint is_doubted

    @cython.locals(index="long long")
    cpdef long long append(self, long long timestamp_ms, object key, object value, object headers) except -1

    @cython.locals(callbacks=list, missing="long long")
    cpdef object call_back(self, long long index, long long timestamp_ms, object on_delivery)

    @cython.locals(delivery=Delivery, first="long long", index="long long", callbacks=list, timestamps_ms=list)
    cpdef object run_callbacks(self, object on_raise)

    @cython.locals(delivery=Delivery, first="long long", index="long long", futures=list, timestamps_ms=list)
    cpdef object resolve_futures(self)
