# Types for the compiled form of network.py; the module runs without it, slower.

cimport cython

from oncelog.client.connection cimport Connection
from oncelog.client.link cimport Link, Peer, Request


cdef class Network:
    cdef object _settings
    cdef object _jitter
    cdef object _reachability
    cdef long long _max_in_flight
    cdef object _memory
    cdef dict _peers
    cdef set _reserved
    cdef dict _links
    cdef long long _next_link
    cdef long long _turn
    cdef list _effects
    cdef list _unreported
    cdef bint _has_made_room
    cdef long long _alarm_ms
    cdef bint _is_closed
    cdef public long long connections_made
    cdef public long long connections_lost
    cdef public long long connections_broken
    cdef public long long requests_sent
    cdef public long long bytes_out
    cdef public long long bytes_in

    @cython.locals(peer=Peer)
    cpdef bint is_connected(self, object node_id) except -1

    @cython.locals(peer=Peer)
    cpdef bint is_ready(self, object node_id, long long now_ms) except -1

    @cython.locals(link=Link)
    cpdef bint _is_ready(self, Peer peer, long long now_ms) except -1

    @cython.locals(peer=Peer)
    cpdef bint is_occupied(self, object node_id) except -1
    cpdef bint is_due(self, long long now_ms) except -1
    cpdef object next_deadline_ms(self, object now_ms)

    @cython.locals(link=Link)
    cpdef list take_effects(self)

    @cython.locals(link=Link)
    cpdef object get_buffer(self, long long number)

    @cython.locals(link=Link, request=Request, events=list)
    cpdef list received(self, long long number, long long count, object now_ms)

    @cython.locals(link=Link, request=Request)
    cpdef object plain_answer(self, long long number, long long count, object now_ms)

    @cython.locals(peer=Peer)
    cpdef Link _ready_link(self, object node_id)
    cpdef object _write(self, Link link, list buffers)
    cpdef object _wake_by(self, long long moment_ms)
