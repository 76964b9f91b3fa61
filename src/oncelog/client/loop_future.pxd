# Types for the compiled form of loop_future.py; the module runs without it, slower.

cimport cython

from oncelog.client._records cimport hide_from_collector, show_to_collector
from oncelog.client._settled cimport settled
from oncelog.client.delivery cimport Delivery, Futures


cdef class LoopFutures


cdef class LoopFuture:
    cdef object __weakref__
    cdef LoopFutures _maker
    cdef Delivery _delivery
    cdef long long _index
    cdef long long _timestamp_ms
    cdef list _callbacks
    cdef readonly object _cancel_message
    cdef bint _is_cancelled
    cdef public bint _asyncio_future_blocking

    cpdef bint done(self)

    @cython.locals(delivery=Delivery)
    cpdef object result(self)

    @cython.locals(delivery=Delivery)
    cpdef Delivery _settled(self)


cdef class LoopFutures(Futures):
    cdef readonly object loop
    cdef object _before_wait
    cdef list _calls

    cpdef object call_soon(self, object function, LoopFuture future, object context)

    @cython.locals(future=LoopFuture)
    cpdef object new(self, Delivery delivery, long long index, long long timestamp_ms)
