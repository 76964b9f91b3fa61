from cpython.pythread cimport PyThread_type_lock


cdef class QuickLock:
    cdef bint is_held
    cdef bint is_gate_open  # for one of those that wait
    cdef int waiting
    cdef PyThread_type_lock gate

    cpdef object acquire(self)
    cpdef object release(self)
