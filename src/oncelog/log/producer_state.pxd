# Types for the compiled form of producer_state.py; the module runs without it, slower and larger. An entry holds no
# Python objects but bytes, so the collector does not know of it.

cdef class ProducerEntry:
    cdef readonly long long producer_id
    cdef readonly int epoch
    cdef readonly int next_sequence
    cdef public int coordinator_epoch
    cdef public long long last_timestamp
    cdef public long long last_appended_ms
    cdef long long _transaction_first_offset
    cdef int _first_sequence
    cdef int _last_sequence
    cdef long long _first_offset
    cdef long long _last_offset
    cdef long long _timestamp
    cdef bytes _earlier_batches

    cpdef begin_epoch(self, int epoch)
    cpdef remember(
        self, int first_sequence, int last_sequence, long long first_offset, long long last_offset, long long timestamp
    )
    cpdef set_transaction(self, first_offset)
    cpdef bint has_open_transaction(self, int epoch)
    cpdef long long silent_ms(self, long long mono_ms)
    cpdef bint is_expired(self, long long mono_ms, long long producer_id_expiration_ms)


cdef class ProducerStateManager:
    cdef public long long producer_id_expiration_ms
    cdef object _topic_partition
    cdef dict _entries
    cdef dict _open_transactions
    cdef object _unreplicated
