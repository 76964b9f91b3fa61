# Types for the compiled form of link.py; the module runs without it, slower.

from oncelog.client.connection cimport Connection


cdef class Request:
    cdef readonly object tag
    cdef readonly object node_id
    cdef readonly long long sent_ms
    cdef readonly long long deadline_ms
    cdef readonly long long held_ms


cdef class Peer:
    cdef public object node
    cdef public Link link
    cdef public long long failures
    cdef public long long retry_ms
    cdef public long long throttled_until_ms
    cdef public object why_lost


cdef class Link:
    cdef public long long number
    cdef public Peer peer
    cdef public Connection connection
    cdef public object state
    cdef public long long load
    cdef public long long used_ms
    cdef public long long heard_ms
    cdef public bint is_silent
    cdef public long long ready_ms
    cdef public long long deadline_ms
    cdef public bint is_paused
    cdef public bint is_leaving
    cdef public bint has_unanswered
    cdef public object write
    cdef public long long untaken
    cdef public long long untaken_unanswered
