# Types for the compiled form of delivery.py; the module runs without it, slower.

cimport cython

from oncelog.client._records cimport new_metadata


cdef class Delivery:
    cdef public str topic
    cdef public int partition
    cdef public long long first_index
    cdef public long long base_offset
    cdef public long long append_time_ms
    cdef public object error
    cdef public object record_errors
    cdef public bint is_done
    cdef public bint is_told
    cdef public list parts
    cdef public object new_waiter
    cdef list _watchers
    cdef bint _has_listeners
    cdef long long _last_ms
    cdef object _last_timestamp_ms

    @cython.locals(offset="long long")
    cpdef object metadata(self, long long index, long long timestamp_ms)

    cpdef object error_of(self, long long index)

    @cython.locals(delivery=Delivery, part=Delivery)
    cpdef Delivery deciding(self, long long index)


cdef Py_ssize_t _call(list watchers, Py_ssize_t start) except -1


cdef class RecordFuture:
    cdef Delivery _delivery
    cdef long long _index
    cdef long long _timestamp_ms

    @cython.locals(followed=Delivery)
    cpdef object follow(self, RecordFuture other)

    cpdef Delivery _deciding(self)

    @cython.locals(delivery=Delivery)
    cpdef Delivery _settled(self, object timeout_s)


@cython.locals(future=RecordFuture)
cpdef RecordFuture new_future(Delivery delivery, long long index, long long timestamp_ms)


cdef class Futures:
    cpdef object new(self, Delivery delivery, long long index, long long timestamp_ms)
