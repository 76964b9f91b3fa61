# Types for the compiled form of frame.py; the module runs without it, slower.

cdef class FrameAssembler:
    cdef long long _max_frame_bytes
    cdef object _shelf
    cdef long long _earned
    cdef readonly object _view
    cdef long long _start
    cdef long long _filled

    cpdef get_buffer(self, object size_hint=*)
    cpdef long long pending_bytes(self)
    cdef _earn(self, long long size_bytes)
