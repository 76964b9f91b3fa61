# Types for the compiled form of network.py; the module runs without it, slower.

cimport cython

from oncelog.client.connection cimport Connection


cdef class _Request:
    cdef readonly object tag
    cdef readonly object node_id
    cdef readonly long long sent_ms
    cdef readonly long long deadline_ms


cdef class _Peer:
    cdef public object node
    cdef public _Link link
    cdef public long long failures
    cdef public long long retry_ms
    cdef public long long throttled_until_ms
    cdef public object why_lost


cdef class _Link:
    cdef public long long number
    cdef public _Peer peer
    cdef public Connection connection
    cdef public object state
    cdef public long long load
    cdef public long long used_ms
    cdef public long long deadline_ms
    cdef public bint is_paused
    cdef public bint is_leaving
    cdef public bint has_unanswered
    cdef public object write
    cdef public long long untaken
    cdef public long long untaken_unanswered


cdef class Network:
    cdef object _settings
    cdef object _jitter
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

    @cython.locals(peer=_Peer)
    cpdef bint is_connected(self, object node_id) except -1

    @cython.locals(peer=_Peer)
    cpdef bint is_ready(self, object node_id, long long now_ms) except -1

    @cython.locals(link=_Link)
    cpdef bint _is_ready(self, _Peer peer, long long now_ms) except -1
    cpdef bint is_due(self, long long now_ms) except -1
    cpdef object next_deadline_ms(self, object now_ms)

    @cython.locals(link=_Link)
    cpdef list take_effects(self)

    @cython.locals(link=_Link)
    cpdef object get_buffer(self, long long number)

    @cython.locals(link=_Link, request=_Request, events=list)
    cpdef list received(self, long long number, long long count, object now_ms)

    @cython.locals(link=_Link, request=_Request)
    cpdef object plain_answer(self, long long number, long long count, object now_ms)

    @cython.locals(peer=_Peer)
    cpdef _Link _ready_link(self, object node_id)
    cpdef object _write(self, _Link link, list buffers)
    cpdef object _wake_by(self, long long moment_ms)
