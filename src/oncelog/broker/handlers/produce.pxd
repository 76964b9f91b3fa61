# Types for the compiled form of produce.py; the module runs without it, slower.

cdef class Appends:
    cdef public object _broker
    cdef public int _version
    cdef public object _produce
    cdef public object _now_ms
    cdef public object _wall_ms
    cdef public object _meter
    cdef public object _refused
    cdef public list _unflushed
    cdef public long long _record_errors_left
    cdef public dict judged

    cdef _topic(self, object topic_position, object topic)
    cdef _what_is_impossible(self, object topic, object name)
    cdef _append(self, object name, object partition)
