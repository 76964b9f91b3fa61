# Types for the compiled form of accumulator.py; the module runs without it, slower.

cimport cython

from oncelog.client._lock cimport QuickLock
from oncelog.client.batch cimport ProducerBatch
from oncelog.client.delivery cimport Futures


# What every record touches comes first, in one line of the processor's cache: with a thousand partitions, each line
# that is fetched for a record costs as much as a step of its way.
cdef class PartitionQueue:
    cdef public ProducerBatch open
    cdef public long long queued_bytes
    cdef public ProducerBatch head
    cdef public str topic
    cdef public object topic_id
    cdef public int index
    cdef public int leader
    cdef public int leader_epoch
    cdef public object batches
    cdef public long long usual_bytes
    cdef public list unsettled
    cdef public long long next_position
    cdef public long long next_ordinal
    cdef public long long stored_position
    cdef public bint has_stored


cdef class TopicQueues:
    cdef public str name
    cdef public list queues
    cdef public object chooser
    cdef public int sticky
    cdef public long long sticky_bytes


@cython.final
cdef class Accumulator:
    cdef long long _batch_size
    cdef long long _buffer_memory
    cdef long long _max_request_size
    cdef long long _overhead
    cdef long long _callback_bytes
    cdef object _new_waiter
    cdef object _lock
    cdef QuickLock _quick_lock
    cdef public Futures futures
    cdef public dict topics
    cdef public long long used_bytes
    cdef public dict incomplete
    cdef public int flushing
    cdef public int are_waiting_for_memory
    cdef public long long early_bytes
    cdef public bint has_early_batch
    cdef public bint is_closed
    cdef public object refusal

    cpdef object _acquire(self)
    cpdef object _release(self)

    @cython.locals(batch=ProducerBatch, size="long long")
    cpdef object append(
        self, PartitionQueue queue, long long timestamp_ms, object key, object value, object headers, object on_delivery
    )

    @cython.locals(before="long long", index="long long", charge="long long")
    cpdef object _add(
        self,
        PartitionQueue queue,
        ProducerBatch batch,
        long long timestamp_ms,
        object key,
        object value,
        object headers,
        object on_delivery,
    )
    cpdef ProducerBatch _new_batch(self, PartitionQueue queue, long long size, long long now_ms)
    cpdef object _close(self, PartitionQueue queue)
