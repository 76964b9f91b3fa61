# cython: language_level=3, cdivision=True, binding=False
"""To which partition a key belongs: what `_python.py` says of it, for compiled code to call without a Python call."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from libc.stdint cimport INT32_MAX, int32_t, uint8_t, uint32_t

cdef extern from *:
    """
    static CYTHON_INLINE uint32_t oncelog_word_of_key(const uint8_t *at) {
        return (uint32_t)at[3] << 24 | (uint32_t)at[2] << 16 | (uint32_t)at[1] << 8 | at[0];
    }
    """
    uint32_t oncelog_word_of_key(const uint8_t *at) noexcept nogil

cdef enum:
    MURMUR2_SEED = 0x9747b28c
    MURMUR2_FACTOR = 0x5bd1e995


cdef uint32_t murmur2_of(const uint8_t *at, Py_ssize_t size) noexcept nogil:
    cdef uint32_t mixed = <uint32_t>MURMUR2_SEED ^ <uint32_t>size
    cdef uint32_t word
    while size >= 4:
        word = oncelog_word_of_key(at) * <uint32_t>MURMUR2_FACTOR
        word = (word ^ word >> 24) * <uint32_t>MURMUR2_FACTOR
        mixed = mixed * <uint32_t>MURMUR2_FACTOR ^ word
        at += 4
        size -= 4
    if size == 3:
        mixed ^= <uint32_t>at[2] << 16
    if size >= 2:
        mixed ^= <uint32_t>at[1] << 8
    if size >= 1:
        mixed = (mixed ^ at[0]) * <uint32_t>MURMUR2_FACTOR
    mixed = (mixed ^ mixed >> 13) * <uint32_t>MURMUR2_FACTOR
    return mixed ^ mixed >> 15


def murmur2(data):
    cdef uint32_t mixed = 0
    mix(data, &mixed)
    return mixed


cpdef int32_t partition_of(object key, int32_t partition_count) except -1:
    cdef uint32_t mixed = 0
    if partition_count < 1:
        raise ValueError(f"a key has no partition among {partition_count}")
    mix(key, &mixed)
    return <int32_t>((mixed & INT32_MAX) % <uint32_t>partition_count)


cdef inline int mix(object data, uint32_t *mixed) except -1:
    cdef Py_buffer view
    if PyBytes_CheckExact(data):
        mixed[0] = murmur2_of(<const uint8_t *>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
        return 0
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        mixed[0] = murmur2_of(<const uint8_t *>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)
    return 0
