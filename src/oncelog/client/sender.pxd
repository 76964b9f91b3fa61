# Types for the compiled form of sender.py; the module runs without it, slower.

cimport cython

from oncelog.client.accumulator cimport Accumulator, PartitionQueue
from oncelog.client.batch cimport ProducerBatch
from oncelog.client.dispatch cimport Dispatch, ProduceTag
from oncelog.client.fates cimport Fates
from oncelog.client.idempotence cimport Idempotence
from oncelog.client.metadata_cache cimport MetadataCache
from oncelog.client.network cimport Network


cdef class SenderCore:
    cdef readonly Network network
    cdef readonly Idempotence idempotence
    cdef readonly MetadataCache metadata
    cdef public dict awaited_topics
    cdef public object close_at_ms
    cdef object _config
    cdef Accumulator _accumulator
    cdef object _counters
    cdef object _jitter
    cdef public object _on_news
    cdef object _cluster
    cdef Fates _fates
    cdef Dispatch _dispatch
    cdef bint _asking_id
    cdef long long _id_attempts
    cdef long long _ask_id_at_ms
    cdef long long _expire_at_ms
    cdef long long _linger_ms
    cdef long long _least_timeout_ms
    cdef long long _wait_until_ms
    cdef bint _is_finished

    cpdef object poll(self, object now_ms)
    cpdef object handle(self, object event, object now_ms)

    @cython.locals(queue=PartitionQueue, batch=ProducerBatch, batches=dict)
    cpdef object _produced(self, ProduceTag tag, object event, object now_ms)
    cpdef long long batch_due_ms(self, PartitionQueue queue, long long now_ms) except -1
    cpdef bint send_alone(self, PartitionQueue queue, long long now_ms, long long wakes_at_ms) except -1
    @cython.locals(incomplete=dict, batch=ProducerBatch)
    cpdef bint awaits_one_answer(self) except -1
    cpdef bint _question_is_due(self, long long now_ms) except -1
    cpdef object _tell_news(self)
    cpdef object _expire(self, object now_ms)
    cpdef object _sleep_ms(self, object now_ms, object wake_ms)
