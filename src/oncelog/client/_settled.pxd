cdef class Settled:
    cdef object result


cpdef object settled(object result)
