# Types for the compiled form of answer_line.py; the module runs without it, slower.

cdef class Place:
    cdef public object chunks
    cdef public long long held_bytes


cdef class AnswerLine:
    cdef object _places
    cdef public long long held_bytes

    cpdef bint is_full(self)
