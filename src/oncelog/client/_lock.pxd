from cpython.pythread cimport PyThread_type_lock


cdef class QuickLock:
    cdef PyThread_type_lock lock

    cpdef object acquire(self)
    cpdef object release(self)
