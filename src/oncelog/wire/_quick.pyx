# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The native twin of `produce` on both sides, and of `codec` for OffsetCommit, for what nearly every one of them is: a
plain request, an answer without errors, and the record of a committed offset.

All functions return None for everything else, be it unusual or wrong: then the Python functions, which alone know how
to refuse, do the work. So this module raises nothing about bytes, and accepts only what they accept. It reads nothing
that it has not compared with the end of the frame first, and makes objects only of what is there.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_DecodeUTF8
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from oncelog.records._named_tuple cimport new_named_tuple
from oncelog.records.model import MAX_BASE_OFFSET as _MAX_BASE_OFFSET
from oncelog.wire import hot, primitives, produce
from oncelog.wire.api import SUPPORTED, ApiKey, flexible
from oncelog.wire.frame import RequestHeader
from oncelog.wire.primitives import uuid_from_bytes
from oncelog.wire.produce import (
    ProducedPartition,
    ProducedTopic,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
)
from oncelog.wire.schema import ZERO_UUID

cdef extern from *:
    """
    static CYTHON_INLINE void give_item(PyObject *made, Py_ssize_t index, PyObject *item) {
        Py_INCREF(item);
        PyTuple_SET_ITEM(made, index, item);
    }
    """
    void give_item(PyObject *made, Py_ssize_t index, PyObject *item) noexcept

cdef extern from "Python.h":
    void Py_DECREF(PyObject *item)

cdef int64_t MAX_BASE_OFFSET = _MAX_BASE_OFFSET

cdef enum:
    NO_OFFSET = -1
    PRODUCE = 0
    FIRST_VERSION = 9  # the first flexible one
    FIRST_WITH_TOPIC_IDS = 13
    LAST_VERSION = 13
    TOPIC_LEAST_BYTES = 3
    PARTITION_LEAST_BYTES = 6
    MAX_ELEMENTS = 32000
    MAX_STRING_BYTES = 32767
    MAX_UVARINT_BYTES = 5
    MAX_UTF8_BYTES = 4  # of one character
    OFFSETS_BYTES = 30
    PRODUCED_BYTES = 33  # offsets, no record errors, no message, no tags
    REQUEST_BOUND_BYTES = 32  # acks, timeout, the count of topics, tags
    PARTITION_BOUND_BYTES = 10  # index, size, tags
    MIN_CHUNK_BYTES = 1024
    UUID_BYTES = 16
    OFFSET_COMMIT = 8
    FIRST_COMMIT = 8  # the first flexible one
    FIRST_COMMIT_WITH_TOPIC_IDS = 10
    LAST_COMMIT = 10
    COMMIT_PARTITION_LEAST_BYTES = 18
    COMMITTED_BYTES = 7
    OFFSET_RECORD = 1  # its type, and so the version of its key
    OFFSET_RECORD_VALUE = 4
    OFFSET_RECORD_BYTES = 22  # version, offset, leader epoch and time
    NO_RETENTION = -1
    NO_EXPIRY = -1
    TOPIC_ID_TAG_BYTES = 3

cdef bytes NO_TOPIC_ID = ZERO_UUID.bytes

assert (PRODUCE, FIRST_VERSION, FIRST_WITH_TOPIC_IDS) == (
    ApiKey.PRODUCE, produce.FIRST_FLEXIBLE, hot.FIRST_WITH_TOPIC_IDS
)
assert LAST_VERSION == SUPPORTED[ApiKey.PRODUCE].highest and flexible(PRODUCE, FIRST_VERSION)
assert MIN_CHUNK_BYTES == produce.MIN_CHUNK_BYTES
assert OFFSET_COMMIT == ApiKey.OFFSET_COMMIT and LAST_COMMIT == SUPPORTED[ApiKey.OFFSET_COMMIT].highest
assert flexible(OFFSET_COMMIT, FIRST_COMMIT) and not flexible(OFFSET_COMMIT, FIRST_COMMIT - 1)
assert (MAX_ELEMENTS, MAX_STRING_BYTES) == (primitives.MAX_REQUEST_ELEMENTS, primitives.MAX_STRING_BYTES)


# ------------------------------------------------------------------------------------------------------ reading


cdef struct Reader:
    const uint8_t *start
    const uint8_t *at
    const uint8_t *end
    bint is_odd  # something was not as expected: what was read since then means nothing


cdef inline bint has(Reader *reader, int64_t size) noexcept:
    if size > reader.end - reader.at:
        reader.is_odd = True
    return not reader.is_odd


cdef inline uint32_t read32(Reader *reader) noexcept:
    if not has(reader, 4):
        return 0
    cdef const uint8_t *at = reader.at
    reader.at += 4
    return <uint32_t>at[0] << 24 | <uint32_t>at[1] << 16 | <uint32_t>at[2] << 8 | at[3]


cdef inline int64_t read64(Reader *reader) noexcept:
    cdef uint64_t high = read32(reader)
    return <int64_t>(high << 32 | read32(reader))


cdef inline int16_t read16(Reader *reader) noexcept:
    if not has(reader, 2):
        return 0
    cdef const uint8_t *at = reader.at
    reader.at += 2
    return <int16_t>(<uint32_t>at[0] << 8 | at[1])


cdef inline int64_t read_uvarint(Reader *reader) noexcept:
    cdef uint64_t value = 0
    cdef int shift = 0
    cdef uint8_t byte
    while shift < 7 * MAX_UVARINT_BYTES and has(reader, 1):
        byte = reader.at[0]
        reader.at += 1
        value |= <uint64_t>(byte & 0x7f) << shift
        if byte < 0x80:
            if value >> 32:
                break
            return <int64_t>value
        shift += 7
    reader.is_odd = True
    return 0


cdef inline int64_t read_count(Reader *reader, int64_t element_bytes, int64_t *budget) noexcept:
    cdef int64_t count = read_uvarint(reader) - 1
    budget[0] -= count
    if count < 0 or budget[0] < 0 or count * element_bytes > reader.end - reader.at:
        reader.is_odd = True
        return 0
    return count


cdef inline void pass_no_tags(Reader *reader) noexcept:
    if has(reader, 1):
        reader.is_odd = reader.at[0] != 0
        reader.at += 1


cdef object read_text(Reader *reader, int64_t size):
    """Text of `size` bytes; None for -1."""
    if size < 0 or size > MAX_STRING_BYTES or not has(reader, size):
        reader.is_odd = reader.is_odd or size != -1
        return None
    cdef const char *at = <const char *>reader.at
    reader.at += size
    try:
        return PyUnicode_DecodeUTF8(at, size, NULL)
    except UnicodeDecodeError:
        reader.is_odd = True


ctypedef object (*BodyReader)(object frame, Reader *reader, int16_t version)


cdef object read_plain(frame, int16_t wanted, int16_t first_version, int16_t last_version, BodyReader read_body):
    """The header and the body of the request in `frame`, if it is a plain one of this API and these versions."""
    cdef Py_buffer view
    cdef Reader reader
    cdef int16_t api_key, version
    cdef int32_t correlation_id
    PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE)
    try:
        reader.start = reader.at = <const uint8_t *>view.buf
        reader.end = reader.start + view.len
        reader.is_odd = False
        api_key = read16(&reader)
        version = read16(&reader)
        if reader.is_odd or api_key != wanted or version < first_version or version > last_version:
            return None
        correlation_id = <int32_t>read32(&reader)
        client_id = read_text(&reader, read16(&reader))
        pass_no_tags(&reader)
        body = read_body(frame, &reader, version)
        if reader.is_odd or reader.at != reader.end:
            return None
        return named(RequestHeader, (api_key, version, correlation_id, client_id)), body
    finally:
        PyBuffer_Release(&view)


def read_produce(frame):
    """The header and the body of the request in `frame`, if it is a plain Produce; else None."""
    return read_plain(frame, PRODUCE, FIRST_VERSION, LAST_VERSION, read_request)


def read_offset_commit(frame):
    """The same for OffsetCommit."""
    return read_plain(frame, OFFSET_COMMIT, FIRST_COMMIT, LAST_COMMIT, read_commit)


cdef object read_request(frame, Reader *reader, int16_t version):
    cdef bint by_id = version >= FIRST_WITH_TOPIC_IDS
    cdef int64_t budget = MAX_ELEMENTS
    cdef int64_t topic_count, count
    cdef list topics = [], partitions
    transactional_id = read_text(reader, read_uvarint(reader) - 1)
    acks = read16(reader)
    timeout_ms = <int32_t>read32(reader)
    topic_count = read_count(reader, TOPIC_LEAST_BYTES, &budget)
    while topic_count and not reader.is_odd:
        topic_count -= 1
        name, topic_id = "", None
        if by_id:
            topic_id = read_topic_id(reader)
        else:
            name = read_text(reader, read_uvarint(reader) - 1)
            reader.is_odd = reader.is_odd or name is None
        count = read_count(reader, PARTITION_LEAST_BYTES, &budget)
        partitions = []
        while count and not reader.is_odd:
            count -= 1
            index = <int32_t>read32(reader)
            partitions.append(named(ProducePartition, (index, read_records(frame, reader))))
            pass_no_tags(reader)
        pass_no_tags(reader)
        topics.append(named(ProduceTopic, (name, topic_id, partitions)))
    pass_no_tags(reader)
    return named(ProduceRequest, (transactional_id, acks, timeout_ms, topics))


cdef object read_topic_id(Reader *reader):
    if not has(reader, UUID_BYTES):
        return None
    cdef const char *at = <const char *>reader.at
    reader.at += UUID_BYTES
    return uuid_from_bytes(PyBytes_FromStringAndSize(at, UUID_BYTES))


cdef object read_records(frame, Reader *reader):
    """A view of the frame; None for null."""
    cdef int64_t size = read_uvarint(reader) - 1
    if size < 0 or not has(reader, size):
        return None
    cdef Py_ssize_t begin = reader.at - reader.start
    reader.at += size
    return frame[begin : begin + <Py_ssize_t>size]


def read_produce_response(frame, Py_ssize_t position, int version):
    """The answer that fills the rest of the frame, if it tells of no error; else None."""
    cdef Py_buffer view
    cdef Reader reader
    if version < FIRST_VERSION or version > LAST_VERSION:
        return None
    PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE)
    try:
        reader.start = <const uint8_t *>view.buf
        reader.at = reader.start + position
        reader.end = reader.start + view.len
        reader.is_odd = position > view.len
        response = read_response(&reader, version >= FIRST_WITH_TOPIC_IDS)
        return None if reader.is_odd or reader.at != reader.end else response
    finally:
        PyBuffer_Release(&view)


cdef object read_response(Reader *reader, bint by_id):
    cdef int64_t budget = MAX_ELEMENTS
    cdef int64_t topic_count, count
    cdef list topics = [], partitions
    topic_count = read_count(reader, TOPIC_LEAST_BYTES, &budget)
    while topic_count and not reader.is_odd:
        topic_count -= 1
        name, topic_id = "", None
        if by_id:
            topic_id = read_topic_id(reader)
        else:
            name = read_present_text(reader)
        count = read_count(reader, PRODUCED_BYTES, &budget)
        partitions = []
        while count and not reader.is_odd:
            count -= 1
            partitions.append(read_produced(reader))
        pass_no_tags(reader)
        topics.append(named(ProducedTopic, (name, topic_id, partitions)))
    throttle_ms = <int32_t>read32(reader)
    pass_no_tags(reader)
    return named(ProduceResponse, (topics, throttle_ms, ()))


cdef object read_produced(Reader *reader):
    """Where one partition's batch is stored."""
    if not has(reader, PRODUCED_BYTES):
        return None
    cdef const uint8_t *at = reader.at + OFFSETS_BYTES
    index = <int32_t>read32(reader)
    cdef int16_t code = read16(reader)
    cdef int64_t base_offset = read64(reader)
    time_ms = read64(reader)
    log_start = read64(reader)
    reader.is_odd = code != 0 or at[0] != 1 or at[1] != 0 or at[2] != 0
    reader.is_odd |= base_offset < NO_OFFSET or base_offset > MAX_BASE_OFFSET
    reader.at = at + 3
    return named(ProducedPartition, (index, 0, base_offset, time_ms, log_start, None, (), None))


cdef object read_commit(frame, Reader *reader, int16_t version):
    cdef bint by_id = version >= FIRST_COMMIT_WITH_TOPIC_IDS
    cdef int64_t budget = MAX_ELEMENTS
    cdef int64_t topic_count
    cdef list topics = []
    group_id = read_present_text(reader)
    generation = <int32_t>read32(reader)
    member_id = read_present_text(reader)
    instance_id = read_text(reader, read_uvarint(reader) - 1)
    topic_count = read_count(reader, TOPIC_LEAST_BYTES, &budget)
    while topic_count and not reader.is_odd:
        topic_count -= 1
        name, topic_id = "", ZERO_UUID
        if by_id:
            topic_id = read_topic_id(reader)
        else:
            name = read_present_text(reader)
        partitions = read_commit_partitions(reader, &budget)
        topics.append({"name": name, "topic_id": topic_id, "partitions": partitions})
    pass_no_tags(reader)
    return {
        "group_id": group_id,
        "generation_id_or_member_epoch": generation,
        "member_id": member_id,
        "group_instance_id": instance_id,
        "retention_time_ms": NO_RETENTION,
        "topics": topics,
    }


cdef list read_commit_partitions(Reader *reader, int64_t *budget):
    cdef int64_t count = read_count(reader, COMMIT_PARTITION_LEAST_BYTES, budget)
    cdef list partitions = []
    while count and not reader.is_odd:
        count -= 1
        index = <int32_t>read32(reader)
        offset = read64(reader)
        epoch = <int32_t>read32(reader)
        metadata = read_text(reader, read_uvarint(reader) - 1)
        pass_no_tags(reader)
        partitions.append({
            "partition_index": index,
            "committed_offset": offset,
            "committed_leader_epoch": epoch,
            "committed_metadata": metadata,
        })
    pass_no_tags(reader)
    return partitions


cdef inline object read_present_text(Reader *reader):
    text = read_text(reader, read_uvarint(reader) - 1)
    reader.is_odd = reader.is_odd or text is None
    return text


cdef object named(type kind, tuple items):
    """An instance of a NamedTuple class, without the detour over its Python constructor."""
    cdef Py_ssize_t index, size = len(items)
    cdef PyObject *made = new_named_tuple(<PyObject *>kind, size)
    for index in range(size):
        give_item(made, index, <PyObject *>items[index])
    try:
        return <object>made
    finally:
        Py_DECREF(made)


# ------------------------------------------------------------------------------------------------------ writing


def produce_response(int version, topics, int32_t throttle_ms):
    """The body of the answer, if it tells of no error and no leader; else None."""
    cdef Py_ssize_t bound = 2 * MAX_UVARINT_BYTES
    if version < FIRST_VERSION:
        return None
    for name, _, partitions in topics:
        bound += MAX_UTF8_BYTES * <Py_ssize_t>len(name) + UUID_BYTES + 2 * MAX_UVARINT_BYTES + 1
        bound += (OFFSETS_BYTES + 3) * <Py_ssize_t>len(partitions)
    cdef bytes room = PyBytes_FromStringAndSize(NULL, bound)
    cdef uint8_t *start = <uint8_t *>PyBytes_AS_STRING(room)
    cdef uint8_t *at = write_uvarint(start, len(topics) + 1)
    for name, topic_id, partitions in topics:
        at = write_name(at, name) if version < FIRST_WITH_TOPIC_IDS else write_bytes(at, topic_id.bytes)
        if at == NULL:
            return None
        at = write_uvarint(at, len(partitions) + 1)
        for index, error_code, base_offset, time_ms, log_start, message, errors, leader in partitions:
            if error_code or message is not None or errors or leader is not None:
                return None
            at = write32(at, <uint32_t><int32_t>index)
            at[0] = at[1] = 0  # no error
            at = write64(write64(write64(at + 2, base_offset), time_ms), log_start)
            at[0] = 1  # an empty array of record errors
            at[1] = at[2] = 0  # no message, no tags
            at += 3
        at[0] = 0
        at += 1
    at = write32(at, <uint32_t>throttle_ms)
    at[0] = 0
    return PyBytes_FromStringAndSize(<char *>start, at + 1 - start)


def produce_request(int version, request):
    """The body in chunks, as its twin makes them; None for versions that are not flexible."""
    cdef Py_ssize_t bound = REQUEST_BOUND_BYTES
    cdef list topics
    cdef uint8_t *room
    if version < FIRST_VERSION or version > LAST_VERSION:
        return None
    transactional_id, acks, timeout_ms, sequence = request
    topics = list(sequence)
    if transactional_id is not None:
        bound += MAX_UTF8_BYTES * <Py_ssize_t>len(<str>transactional_id)
    for name, _, partitions in topics:
        bound += MAX_UTF8_BYTES * <Py_ssize_t>len(<str>name) + UUID_BYTES + 2 * MAX_UVARINT_BYTES + 1
        bound += (PARTITION_BOUND_BYTES + MIN_CHUNK_BYTES) * <Py_ssize_t>len(partitions)
    room = <uint8_t *>PyMem_Malloc(bound)
    if room == NULL:
        raise MemoryError()
    try:
        return write_request(room, version >= FIRST_WITH_TOPIC_IDS, transactional_id, acks, timeout_ms, topics)
    finally:
        PyMem_Free(room)


cdef list write_request(uint8_t *room, bint by_id, transactional_id, int16_t acks, int32_t timeout_ms, list topics):
    cdef uint8_t *at = room
    cdef uint8_t *begin = room  # of the chunk
    cdef list chunks = []
    cdef Py_buffer view
    if transactional_id is None:
        at[0] = 0
        at += 1
    else:
        at = write_name(at, transactional_id)
    if at == NULL:
        return None
    at = write_uvarint(write32(write16(at, acks), <uint32_t>timeout_ms), len(topics) + 1)
    for name, topic_id, partitions in topics:
        if by_id:
            at = NULL if topic_id is None else write_bytes(at, topic_id.int.to_bytes(UUID_BYTES, "big"))
        else:
            at = write_name(at, name)
        if at == NULL:
            return None
        at = write_uvarint(at, len(partitions) + 1)
        for index, records in partitions:
            if records is None:
                return None
            PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
            try:
                at = write_uvarint(write32(at, <uint32_t><int32_t>index), view.len + 1)
                if view.len >= MIN_CHUNK_BYTES:
                    chunks.append(PyBytes_FromStringAndSize(<char *>begin, at - begin))
                    chunks.append(records)
                    begin = at
                else:
                    at = write_data(at, <const char *>view.buf, view.len)
            finally:
                PyBuffer_Release(&view)
            at[0] = 0  # no tags
            at += 1
        at[0] = 0
        at += 1
    at[0] = 0
    chunks.append(PyBytes_FromStringAndSize(<char *>begin, at + 1 - begin))
    return chunks


def offset_commit_response(int version, dict answer):
    """The body of the answer, if it tells of no error; else None."""
    cdef list topics = answer["topics"]
    cdef list partitions
    cdef Py_ssize_t bound = 4 + MAX_UVARINT_BYTES + 1
    cdef bint by_id = version >= FIRST_COMMIT_WITH_TOPIC_IDS
    if version < FIRST_COMMIT:
        return None
    for topic in topics:
        if "name" not in topic or "topic_id" not in topic:
            return None  # the twin knows what they are then
        bound += MAX_UTF8_BYTES * <Py_ssize_t>len(topic["name"]) + UUID_BYTES + 2 * MAX_UVARINT_BYTES + 1
        bound += COMMITTED_BYTES * <Py_ssize_t>len(topic["partitions"])
    cdef bytes room = PyBytes_FromStringAndSize(NULL, bound)
    cdef uint8_t *start = <uint8_t *>PyBytes_AS_STRING(room)
    cdef uint8_t *at = write32(start, <uint32_t><int32_t>answer.get("throttle_time_ms", 0))
    at = write_uvarint(at, len(topics) + 1)
    for topic in topics:
        at = write_bytes(at, topic["topic_id"].bytes) if by_id else write_name(at, topic["name"])
        if at == NULL:
            return None
        partitions = topic["partitions"]
        at = write_uvarint(at, len(partitions) + 1)
        for partition in partitions:
            if (<dict>partition).get("error_code"):
                return None
            at = write32(at, <uint32_t><int32_t>(<dict>partition)["partition_index"])
            at[0] = at[1] = at[2] = 0  # no error, no tags
            at += 3
        at[0] = 0
        at += 1
    at[0] = 0
    return PyBytes_FromStringAndSize(<char *>start, at + 1 - start)


def offset_record(dict key, dict value):
    """Key and value of a record of `__consumer_offsets`, if the offset has no expiry of its own; else None."""
    cdef Py_ssize_t group_size, topic_size, metadata_size
    cdef const char *group = PyUnicode_AsUTF8AndSize(key["group"], &group_size)
    cdef const char *topic = PyUnicode_AsUTF8AndSize(key["topic"], &topic_size)
    cdef const char *metadata = PyUnicode_AsUTF8AndSize(value["metadata"], &metadata_size)
    if group_size > MAX_STRING_BYTES or topic_size > MAX_STRING_BYTES or metadata_size > MAX_STRING_BYTES:
        return None
    if value.get("expire_timestamp", NO_EXPIRY) != NO_EXPIRY:
        return None
    cdef bytes topic_id = uuid_bytes(value["topic_id"])
    cdef bytes key_bytes = PyBytes_FromStringAndSize(NULL, 2 + 2 + group_size + 2 + topic_size + 4)
    cdef uint8_t *at = write16(<uint8_t *>PyBytes_AS_STRING(key_bytes), OFFSET_RECORD)
    at = write_data(write16(at, group_size), group, group_size)
    at = write_data(write16(at, topic_size), topic, topic_size)
    write32(at, <uint32_t><int32_t>key["partition"])
    cdef Py_ssize_t bound = OFFSET_RECORD_BYTES + MAX_UVARINT_BYTES + metadata_size + TOPIC_ID_TAG_BYTES + UUID_BYTES
    cdef bytes room = PyBytes_FromStringAndSize(NULL, bound)
    cdef uint8_t *start = <uint8_t *>PyBytes_AS_STRING(room)
    at = write64(write16(start, OFFSET_RECORD_VALUE), value["offset"])
    at = write_uvarint(write32(at, <uint32_t><int32_t>value["leader_epoch"]), metadata_size + 1)
    at = write64(write_data(at, metadata, metadata_size), value["commit_timestamp"])
    if topic_id == NO_TOPIC_ID:
        at[0] = 0  # no tags
        at += 1
    else:
        at[0] = 1  # one tagged field,
        at[1] = 0  # of tag 0
        at[2] = UUID_BYTES
        at = write_bytes(at + TOPIC_ID_TAG_BYTES, topic_id)
    return key_bytes, PyBytes_FromStringAndSize(<char *>start, at - start)


cdef object last_topic_id = ZERO_UUID
cdef bytes last_topic_id_bytes = NO_TOPIC_ID


cdef bytes uuid_bytes(topic_id):
    """The bytes of a topic's id; most often it is the one that was asked for last."""
    global last_topic_id, last_topic_id_bytes
    if topic_id is not last_topic_id:
        last_topic_id, last_topic_id_bytes = topic_id, topic_id.bytes
    return last_topic_id_bytes


cdef inline uint8_t *write16(uint8_t *at, Py_ssize_t value) noexcept:
    at[0] = <uint8_t>(value >> 8)
    at[1] = <uint8_t>value
    return at + 2


cdef inline uint8_t *write_data(uint8_t *at, const char *data, Py_ssize_t size) noexcept:
    memcpy(at, data, size)
    return at + size


cdef inline uint8_t *write32(uint8_t *at, uint32_t value) noexcept:
    at[0] = <uint8_t>(value >> 24)
    at[1] = <uint8_t>(value >> 16)
    at[2] = <uint8_t>(value >> 8)
    at[3] = <uint8_t>value
    return at + 4


cdef inline uint8_t *write64(uint8_t *at, int64_t value) noexcept:
    return write32(write32(at, <uint32_t>(<uint64_t>value >> 32)), <uint32_t>value)


cdef inline uint8_t *write_uvarint(uint8_t *at, uint64_t value) noexcept:
    while value >= 0x80:
        at[0] = <uint8_t>(value & 0x7f | 0x80)
        value >>= 7
        at += 1
    at[0] = <uint8_t>value
    return at + 1


cdef uint8_t *write_name(uint8_t *at, str name):
    """Behind the name; NULL if the protocol cannot carry it."""
    cdef Py_ssize_t size
    cdef const char *data = PyUnicode_AsUTF8AndSize(name, &size)
    if size > MAX_STRING_BYTES:
        return NULL
    return write_data(write_uvarint(at, size + 1), data, size)


cdef uint8_t *write_bytes(uint8_t *at, bytes data):
    memcpy(at, PyBytes_AS_STRING(data), UUID_BYTES)
    return at + UUID_BYTES
