# Types for the compiled form of metadata_cache.py; the module runs without it, slower.


cdef class MetadataCache:
    cdef object _max_age_ms
    cdef object _max_idle_ms
    cdef object _retry_backoff_ms
    cdef bint _may_create_topics
    cdef public bint wants_all
    cdef public object cluster
    cdef public dict topic_errors
    cdef public long long answers
    cdef public long long asked
    cdef public long long answered
    cdef dict _wanted
    cdef set _unusable
    cdef bint _is_stale
    cdef bint _is_asking
    cdef bint _asked_all
    cdef object _asked
    cdef object _asked_ms
    cdef object _learned_ms

    cpdef object want(self, str topic, object now_ms)
    cpdef object mark_stale(self)
    cpdef object due_ms(self)
