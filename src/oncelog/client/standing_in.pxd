# Types for the compiled form of standing_in.py.

cimport cython

from oncelog.client.accumulator cimport Accumulator, PartitionQueue
from oncelog.client.network cimport Network
from oncelog.client.sender cimport SenderCore


cdef class StandIn:
    cdef SenderCore _core
    cdef Accumulator _accumulator
    cdef Network _network
    cdef object _driver
    cdef object _turn
    cdef object _poll_sockets
    cdef object _modify_gate
    cdef object _sockets_fd
    cdef object _now_ns
    cdef long long _usual_ns

    cpdef bint send(self, PartitionQueue queue) except -1
    cpdef object attend(self, LoneWaiter waiter, object timeout_s)

    @cython.locals(size="long long", sent="long long", is_done=bint)
    cpdef bint _write(self) except -1

    @cython.locals(end_ms="long long", now_ms="long long")
    cpdef object _read_until(self, LoneWaiter waiter, object timeout_s)

    @cython.locals(began_ns="long long", now_ns="long long", ready=list)
    cpdef list _ready(self, double timeout_s)
    cpdef bint _read(self, tuple ready, object now_ms) except -1


cdef class LoneWaiter:
    cdef StandIn _stand_in
    cdef object _lock
    cdef long long _end_ns
    cdef readonly bint is_set

    cpdef object set(self)
    cpdef object wait(self, object timeout_s=*)
