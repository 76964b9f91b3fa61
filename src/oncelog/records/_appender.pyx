"""What compiled code calls for every record, without a Python call between: `BatchBuilder.append`."""

from libc.stdint cimport int64_t


cdef class Appender:
    cpdef Py_ssize_t append(
        self, int64_t timestamp_ms, object key, object value, object headers=(), object offset_delta=None
    ) except -1:
        raise NotImplementedError
