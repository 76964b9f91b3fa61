from libc.stdint cimport int32_t, uint8_t, uint32_t


cdef uint32_t murmur2_of(const uint8_t *at, Py_ssize_t size) noexcept nogil

cpdef int32_t partition_of(object key, int32_t partition_count) except -1
