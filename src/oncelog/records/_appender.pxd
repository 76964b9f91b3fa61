from libc.stdint cimport int64_t


cdef class Appender:
    cpdef Py_ssize_t append(
        self, int64_t timestamp_ms, object key, object value, object headers=*, object offset_delta=*
    ) except -1
