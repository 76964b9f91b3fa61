# Types for the compiled form of produce.py; the module runs without it, slower.

cdef class Appends:
    cdef object _broker
    cdef int _version
    cdef object _produce
    cdef object _now_ms
    cdef object _wall_ms
    cdef object _meter
    cdef object _refused
    cdef list _unflushed
    cdef long long _record_errors_left
    cdef public dict judged

    cdef _answer(self, list topics)
    cdef _topic(self, object topic_position, object topic)
    cdef _what_is_impossible(self, object topic, object name)
    cdef _append(self, object name, object partition)
