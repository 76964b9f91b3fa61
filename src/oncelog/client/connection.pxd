# Types for the compiled form of connection.py; the module runs without it, slower.

from oncelog.wire.frame_receiver cimport FrameReceiver


cdef class Connection:
    cdef dict _chosen
    cdef object _client_id
    cdef object _expected
    cdef FrameReceiver _frames
    cdef object _negotiated
    cdef long long _next_correlation_id
    cdef dict _signatures
    cdef bytearray _to_send

    cpdef object version_of(self, object api_key, object max_version=*)
    cpdef object get_buffer(self)
    cpdef tuple plain_answer(self, long long count)
    cpdef object _request(self, object api_key, object version, list chunks, bint answered, object tag)
