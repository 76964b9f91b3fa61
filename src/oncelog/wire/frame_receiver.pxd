# Types for the compiled form of frame_receiver.py; the module runs without it, slower.


cdef class FrameMemory:
    cdef readonly list _kept
    cdef long long _kept_bytes


cdef class FrameReceiver:
    cdef long long _max_frame_bytes
    cdef FrameMemory _memory
    cdef object _small
    cdef object _large
    cdef long long _start
    cdef long long _filled

    cpdef object get_buffer(self)
    cpdef object peek(self, long long count)
    cpdef object forget(self)
