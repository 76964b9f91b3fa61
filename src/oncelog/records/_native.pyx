# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, binding=False
"""The kernel in Cython: what `_python.py` does, at the speed of memory. Same names, same results, same errors.

`_python.py` documents each function; here stands only what the speed demands. The rules of this file:
- Every byte is read through a function that is given the end of what may be read, and checks it.
- A value read from a buffer is read once and kept: another thread may change the buffer meanwhile.
- No pointer into an object of ours lives across a call into Python, which might move what it points to.
- Memory is reserved for what the bytes at hand can hold, never for what they claim.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from libc.stdint cimport INT32_MAX, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

cimport cython

from oncelog.records._appender cimport Appender
from oncelog.records._named_tuple cimport new_named_tuple
from oncelog.records._placing cimport murmur2_of
from oncelog.errors import CorruptMessage, InvalidRecord, MessageTooLarge, UnsupportedCompressionType
from oncelog.records import compression, model
from oncelog.records._placing import murmur2, partition_of
from oncelog.records.model import (
    BatchHeader, BinaryColumn, CheckedRecords, ColumnBuffers, Record, RecordDeserializationError
)
from oncelog.types import TimestampType, TopicPartition

cdef extern from "_crc32c.h" nogil:
    void oncelog_crc32c_init()
    uint32_t oncelog_crc32c(uint32_t value, const uint8_t *data, size_t size)
    uint32_t oncelog_crc32c_by_tables(uint32_t value, const uint8_t *data, size_t size)

cdef extern from *:
    """
    static CYTHON_INLINE uint32_t load32(const uint8_t *at) {
        return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
    }
    static CYTHON_INLINE void fetch_for_writing(const uint8_t *at) {
        __builtin_prefetch(at + 64, 1); __builtin_prefetch(at + 128, 1);
    }
    static CYTHON_INLINE uint64_t load64(const uint8_t *at) { return (uint64_t)load32(at) << 32 | load32(at + 4); }
    static CYTHON_INLINE int16_t load16(const uint8_t *at) { return (int16_t)((uint16_t)at[0] << 8 | at[1]); }
    static CYTHON_INLINE void store16(uint8_t *at, uint32_t value) { at[0] = (uint8_t)(value >> 8); at[1] = (uint8_t)value; }
    static CYTHON_INLINE void store32(uint8_t *at, uint32_t value) { store16(at, value >> 16); store16(at + 2, value); }
    static CYTHON_INLINE void store64(uint8_t *at, uint64_t value) {
        store32(at, (uint32_t)(value >> 32)); store32(at + 4, (uint32_t)value);
    }
    static CYTHON_INLINE int set_item(PyObject *made, Py_ssize_t index, PyObject *item) {
        PyTuple_SET_ITEM(made, index, item);
        return item == NULL ? -1 : 0;
    }
    """
    uint32_t load32(const uint8_t *at) noexcept nogil
    void fetch_for_writing(const uint8_t *at) noexcept nogil
    uint64_t load64(const uint8_t *at) noexcept nogil
    int16_t load16(const uint8_t *at) noexcept nogil
    void store16(uint8_t *at, uint32_t value) noexcept nogil
    void store32(uint8_t *at, uint32_t value) noexcept nogil
    void store64(uint8_t *at, uint64_t value) noexcept nogil
    int set_item(PyObject *made, Py_ssize_t index, PyObject *item) except -1

cdef extern from "Python.h":
    PyObject *new_int "PyLong_FromLongLong"(long long value)
    PyObject *new_bytes "PyBytes_FromStringAndSize"(const char *data, Py_ssize_t size)
    PyObject *new_text "PyUnicode_DecodeUTF8"(const char *data, Py_ssize_t size, const char *errors)
    PyObject *new_tuple "PyTuple_New"(Py_ssize_t size) except NULL
    void Py_INCREF(PyObject *item)
    void Py_DECREF(PyObject *item)

cdef enum:
    HEADER_SIZE = 61
    LOG_OVERHEAD = 12
    CRC_START = 21
    MIN_RECORD_SIZE = 7
    MAGIC = 2
    MAX_BATCH_BYTES = 0x7fffffff

    LENGTH_AT = 8
    LEADER_EPOCH_AT = 12
    MAGIC_AT = 16
    CRC_AT = 17
    LAST_OFFSET_DELTA_AT = 23
    BASE_TIMESTAMP_AT = 27
    MAX_TIMESTAMP_AT = 35
    PRODUCER_ID_AT = 43
    PRODUCER_EPOCH_AT = 51
    BASE_SEQUENCE_AT = 53
    RECORD_COUNT_AT = 57

    TIMESTAMP_TYPE_MASK = 0x08
    TRANSACTIONAL_MASK = 0x10
    CONTROL_MASK = 0x20
    DELETE_HORIZON_MASK = 0x40

    NO_TIMESTAMP = -1

    MAX_VARINT_BYTES = 5
    MAX_VARLONG_BYTES = 10
    RELEASE_GIL_BYTES = 262144  # below this a CRC takes less time than other threads need to notice

assert (HEADER_SIZE, LOG_OVERHEAD, CRC_START, MIN_RECORD_SIZE) == (
    model.HEADER_SIZE, model.LOG_OVERHEAD, model.CRC_START, model.MIN_RECORD_SIZE
)

oncelog_crc32c_init()


# ------------------------------------------------------------------------------------------------------ batches


def crc32c(data, uint32_t value=0):
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        return crc_of(value, <const uint8_t *>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)


def crc32c_by_tables(data, uint32_t value=0):
    """The CRC as machines without an instruction for it compute it; tests compare both ways on one machine."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        return oncelog_crc32c_by_tables(value, <const uint8_t *>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)


cdef uint32_t crc_of(uint32_t value, const uint8_t *data, Py_ssize_t size) noexcept:
    if size < RELEASE_GIL_BYTES:
        return oncelog_crc32c(value, data, size)
    with nogil:
        value = oncelog_crc32c(value, data, size)
    return value


def parse_header(buffer, Py_ssize_t position=0):
    cdef Py_buffer view
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        if position < 0 or view.len - position < HEADER_SIZE:
            raise CorruptMessage(
                f"a batch header takes {HEADER_SIZE} bytes, {max(0, view.len - position)} are left"
            )
        return header_at(<const uint8_t *>view.buf + position)
    finally:
        PyBuffer_Release(&view)


cdef object header_at(const uint8_t *at):
    """The header in the 61 bytes at `at`, which the caller has made sure of."""
    cdef int64_t size_bytes = <int64_t><int32_t>load32(at + LENGTH_AT) + LOG_OVERHEAD
    if size_bytes < HEADER_SIZE or size_bytes > MAX_BATCH_BYTES:
        raise CorruptMessage(f"a batch cannot have length {size_bytes - LOG_OVERHEAD}")
    cdef PyObject *made = new_named_tuple(<PyObject *>BatchHeader, 13)
    try:
        set_item(made, 0, new_int(<int64_t>load64(at)))
        set_item(made, 1, new_int(size_bytes))
        set_item(made, 2, new_int(<int32_t>load32(at + LEADER_EPOCH_AT)))
        set_item(made, 3, new_int(<signed char>at[MAGIC_AT]))
        set_item(made, 4, new_int(load32(at + CRC_AT)))
        set_item(made, 5, new_int(load16(at + CRC_START)))
        set_item(made, 6, new_int(<int32_t>load32(at + LAST_OFFSET_DELTA_AT)))
        set_item(made, 7, new_int(<int64_t>load64(at + BASE_TIMESTAMP_AT)))
        set_item(made, 8, new_int(<int64_t>load64(at + MAX_TIMESTAMP_AT)))
        set_item(made, 9, new_int(<int64_t>load64(at + PRODUCER_ID_AT)))
        set_item(made, 10, new_int(load16(at + PRODUCER_EPOCH_AT)))
        set_item(made, 11, new_int(<int32_t>load32(at + BASE_SEQUENCE_AT)))
        set_item(made, 12, new_int(<int32_t>load32(at + RECORD_COUNT_AT)))
        return <object>made
    finally:
        Py_DECREF(made)


def crc_matches(buffer, Py_ssize_t position, Py_ssize_t size_bytes):
    cdef Py_buffer view
    cdef const uint8_t *at
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        if position < 0 or size_bytes < HEADER_SIZE or size_bytes > view.len - position:
            return False
        at = <const uint8_t *>view.buf + position
        return crc_of(0, at + CRC_START, size_bytes - CRC_START) == load32(at + CRC_AT)
    finally:
        PyBuffer_Release(&view)


cdef int64_t good_batch_size(const uint8_t *at, Py_ssize_t left, bint verify_crc) noexcept nogil:
    """Size of the batch at `at` if it is whole, of format 2 and, when asked, has the right CRC; else 0."""
    if left < HEADER_SIZE:
        return 0
    cdef int64_t size_bytes = <int64_t><int32_t>load32(at + LENGTH_AT) + LOG_OVERHEAD
    if size_bytes < HEADER_SIZE or size_bytes > left or at[MAGIC_AT] != MAGIC:
        return 0
    if verify_crc and oncelog_crc32c(0, at + CRC_START, size_bytes - CRC_START) != load32(at + CRC_AT):
        return 0
    return size_bytes


cdef Py_ssize_t good_bytes(const uint8_t *data, Py_ssize_t size, bint verify_crc) noexcept nogil:
    cdef Py_ssize_t position = 0
    cdef int64_t size_bytes
    while True:
        size_bytes = good_batch_size(data + position, size - position, verify_crc)
        if size_bytes == 0:
            return position
        position += size_bytes


def scan(buffer, Py_ssize_t start, Py_ssize_t end, bint verify_crc):
    cdef Py_buffer view
    cdef Py_ssize_t size, good, position = 0
    cdef int64_t size_bytes
    cdef const uint8_t *data
    cdef list headers = []
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        start = max(0, start)
        size = min(end, view.len) - start
        if size <= 0:
            return headers, 0
        data = <const uint8_t *>view.buf + start
        good = size
        if verify_crc:
            # All CRCs first: the lock is given up once, not at every batch, where getting it back may take long.
            if size < RELEASE_GIL_BYTES:
                good = good_bytes(data, size, True)
            else:
                with nogil:
                    good = good_bytes(data, size, True)
        while True:
            size_bytes = good_batch_size(data + position, good - position, False)
            if size_bytes == 0:
                return headers, position
            headers.append(header_at(data + position))
            position += size_bytes
    finally:
        PyBuffer_Release(&view)


def find_batch(buffer, Py_ssize_t start, Py_ssize_t end, int64_t offset):
    cdef Py_buffer view
    cdef Py_ssize_t position
    cdef int64_t size_bytes
    cdef const uint8_t *at
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        end = min(end, view.len)
        position = max(0, start)
        while end - position >= HEADER_SIZE:
            at = <const uint8_t *>view.buf + position
            size_bytes = <int64_t><int32_t>load32(at + LENGTH_AT) + LOG_OVERHEAD
            if size_bytes < HEADER_SIZE:
                return -1
            if add64(<int64_t>load64(at), <int32_t>load32(at + LAST_OFFSET_DELTA_AT)) >= offset:
                return position
            position += size_bytes
        return -1
    finally:
        PyBuffer_Release(&view)


def stamp(buffer, Py_ssize_t position, int64_t base_offset, int32_t leader_epoch):
    cdef Py_buffer view
    cdef uint8_t *at
    PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
    try:
        at = batch_at(&view, position, HEADER_SIZE)
        store64(at, <uint64_t>base_offset)
        store32(at + LEADER_EPOCH_AT, <uint32_t>leader_epoch)
    finally:
        PyBuffer_Release(&view)


def stamp_append_time(buffer, Py_ssize_t position, Py_ssize_t size_bytes, int64_t now_ms):
    stamp_time(buffer, position, size_bytes, TIMESTAMP_TYPE_MASK, now_ms)


def stamp_create_time(buffer, Py_ssize_t position, Py_ssize_t size_bytes, int64_t max_timestamp):
    stamp_time(buffer, position, size_bytes, 0, max_timestamp)


cdef int stamp_time(
    buffer, Py_ssize_t position, Py_ssize_t size_bytes, uint8_t type_bit, int64_t timestamp
) except -1:
    cdef Py_buffer view
    cdef uint8_t *at
    PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
    try:
        at = batch_at(&view, position, size_bytes)
        at[CRC_START + 1] = at[CRC_START + 1] & ~TIMESTAMP_TYPE_MASK | type_bit
        store64(at + MAX_TIMESTAMP_AT, <uint64_t>timestamp)
        store32(at + CRC_AT, crc_of(0, at + CRC_START, size_bytes - CRC_START))
    finally:
        PyBuffer_Release(&view)
    return 0


def renumber(buffer, Py_ssize_t position, int64_t producer_id, int16_t producer_epoch, int32_t base_sequence):
    cdef Py_buffer view
    cdef uint8_t *at
    cdef int64_t size_bytes
    PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
    try:
        at = batch_at(&view, position, HEADER_SIZE)
        size_bytes = <int64_t><int32_t>load32(at + LENGTH_AT) + LOG_OVERHEAD
        at = batch_at(&view, position, size_bytes)
        store64(at + PRODUCER_ID_AT, <uint64_t>producer_id)
        store16(at + PRODUCER_EPOCH_AT, <uint32_t><int>producer_epoch)
        store32(at + BASE_SEQUENCE_AT, <uint32_t>base_sequence)
        store32(at + CRC_AT, crc_of(0, at + CRC_START, size_bytes - CRC_START))
    finally:
        PyBuffer_Release(&view)


cdef uint8_t *batch_at(Py_buffer *view, Py_ssize_t position, Py_ssize_t size_bytes) except NULL:
    if position < 0 or size_bytes < HEADER_SIZE or size_bytes > view.len - position:
        raise CorruptMessage(f"no batch of {size_bytes} bytes at {position} in a buffer of {view.len} bytes")
    return <uint8_t *>view.buf + position


# ------------------------------------------------------------------------------------------------------ records


cdef enum Flaw:
    SOUND = 0
    BAD_VARINT
    BAD_RECORD_LENGTH
    BAD_FIELD_LENGTH
    BAD_HEADER_COUNT
    NULL_HEADER_KEY
    FIELDS_TOO_SHORT
    NO_MEMORY

cdef tuple FLAWS = (
    "",
    "a variable-length integer is cut off or too large",
    "it claims more bytes than are left",
    "a field claims more bytes than are left in the record",
    "it claims more headers than its bytes can hold",
    "a header has a null key",
    "it is longer than its fields",
    "out of memory",
)

cdef struct Span:
    const uint8_t *data
    Py_ssize_t size  # -1 for null

cdef struct Fields:
    const uint8_t *end  # of the record
    int64_t timestamp_delta
    int32_t offset_delta
    int32_t header_count
    Span key
    Span value

# The readers below take where they are and the end of what they may read, and return where they stopped: kept in
# registers, that is what makes the walk fast. They return NULL, having said why in `flaw`, if the bytes are bad.


cdef inline int64_t add64(int64_t left, int64_t right) noexcept nogil:
    """The sum as Java has it: it wraps."""
    return <int64_t>(<uint64_t>left + <uint64_t>right)


cdef const uint8_t *read_bits(
    const uint8_t *at, const uint8_t *end, int max_bytes, uint64_t *value, Flaw *flaw
) noexcept nogil:
    cdef uint64_t bits = 0
    cdef int shift = 0
    cdef uint8_t byte
    flaw[0] = BAD_VARINT
    while at < end and shift < 7 * max_bytes:
        byte = at[0]
        at += 1
        if shift == 63 and byte > 1:
            return NULL
        bits |= <uint64_t>(byte & 0x7f) << shift
        if byte < 0x80:
            if max_bytes == MAX_VARINT_BYTES and bits >> 32:
                return NULL
            flaw[0] = SOUND
            value[0] = bits
            return at
        shift += 7
    return NULL


cdef inline const uint8_t *read_short_bits(const uint8_t *at, const uint8_t *end, uint64_t *bits) noexcept nogil:
    """The one or two bytes that nearly every integer has, or NULL: then it is longer, or bad."""
    cdef uint64_t first, second
    if at >= end:
        return NULL
    first = at[0]
    if first < 0x80:
        bits[0] = first
        return at + 1
    if end - at < 2:
        return NULL
    second = at[1]
    if second >= 0x80:
        return NULL
    bits[0] = (first & 0x7f) | second << 7
    return at + 2


cdef inline const uint8_t *read_varint(
    const uint8_t *at, const uint8_t *end, int32_t *value, Flaw *flaw
) noexcept nogil:
    cdef uint64_t bits = 0
    cdef const uint8_t *after = read_short_bits(at, end, &bits)
    if after == NULL:
        after = read_bits(at, end, MAX_VARINT_BYTES, &bits, flaw)
    value[0] = <int32_t>(bits >> 1) ^ -<int32_t>(bits & 1)
    return after


cdef inline const uint8_t *read_varlong(
    const uint8_t *at, const uint8_t *end, int64_t *value, Flaw *flaw
) noexcept nogil:
    cdef uint64_t bits = 0
    cdef const uint8_t *after = read_short_bits(at, end, &bits)
    if after == NULL:
        after = read_bits(at, end, MAX_VARLONG_BYTES, &bits, flaw)
    value[0] = <int64_t>(bits >> 1) ^ -<int64_t>(bits & 1)
    return after


cdef inline const uint8_t *read_span(const uint8_t *at, const uint8_t *end, Span *span, Flaw *flaw) noexcept nogil:
    cdef int32_t size = 0
    at = read_varint(at, end, &size, flaw)
    if at == NULL:
        return NULL
    if size < -1 or size > end - at:
        flaw[0] = BAD_FIELD_LENGTH
        return NULL
    span.data = at
    span.size = size
    return at + size if size > 0 else at


cdef const uint8_t *enter_record(const uint8_t *at, const uint8_t *end, Fields *fields, Flaw *flaw) noexcept nogil:
    """Read all of the record at `at` but its headers: `fields.header_count` of `read_header` must follow."""
    cdef int32_t length = 0
    at = read_varint(at, end, &length, flaw)
    if at == NULL:
        return NULL
    if length <= 0 or length > end - at:
        flaw[0] = BAD_RECORD_LENGTH
        return NULL
    end = at + length
    fields.end = end
    at = read_varlong(at + 1, end, &fields.timestamp_delta, flaw)  # a record's first byte, its attributes, is unused
    if at == NULL:
        return NULL
    at = read_varint(at, end, &fields.offset_delta, flaw)
    if at == NULL:
        return NULL
    at = read_span(at, end, &fields.key, flaw)
    if at == NULL:
        return NULL
    at = read_span(at, end, &fields.value, flaw)
    if at == NULL:
        return NULL
    at = read_varint(at, end, &fields.header_count, flaw)
    if at == NULL:
        return NULL
    if fields.header_count < 0 or fields.header_count > (end - at) // 2:
        flaw[0] = BAD_HEADER_COUNT
        return NULL
    if fields.header_count == 0 and at != end:
        flaw[0] = FIELDS_TOO_SHORT
        return NULL
    return at


cdef const uint8_t *read_header(
    const uint8_t *at, const uint8_t *end, Span *key, Span *value, Flaw *flaw
) noexcept nogil:
    at = read_span(at, end, key, flaw)
    if at == NULL:
        return NULL
    if key.size < 0:
        flaw[0] = NULL_HEADER_KEY
        return NULL
    return read_span(at, end, value, flaw)


cdef const uint8_t *skip_headers(const uint8_t *at, const Fields *fields, Flaw *flaw) noexcept nogil:
    cdef Span key, value
    for _ in range(fields.header_count):
        at = read_header(at, fields.end, &key, &value, flaw)
        if at == NULL:
            return NULL
    return leave_record(at, fields, flaw)


cdef inline const uint8_t *leave_record(const uint8_t *at, const Fields *fields, Flaw *flaw) noexcept nogil:
    if at != fields.end:
        flaw[0] = FIELDS_TOO_SHORT
        return NULL
    return at


cdef int check_count(Py_ssize_t size, int32_t record_count) except -1:
    if record_count < 0 or record_count > size // MIN_RECORD_SIZE:
        raise InvalidRecord(f"{record_count} records cannot lie in {size} bytes")
    return 0


cdef int check_all_read(const uint8_t *at, const uint8_t *end, int32_t record_count) except -1:
    if at != end:
        raise InvalidRecord(f"{end - at} bytes are left over after {record_count} records")
    return 0


cdef object error_of(Flaw flaw, int32_t index):
    if flaw == NO_MEMORY:
        return MemoryError()
    return InvalidRecord(f"record {index} is malformed: {FLAWS[<int>flaw]}")


cdef enum:
    STEP_COUNT = 65536  # records, or headers of one, that are walked while the interpreter's lock is kept


cdef inline int pass_record(const uint8_t *at, const uint8_t *end, Fields *fields, int32_t index) except -1:
    """Read the record at `at`, whose headers nobody needs; it ends where `fields.end` says. Who walks millions of them in
    a thread does not keep the interpreter's lock all the while."""
    cdef Flaw flaw = SOUND
    at = enter_record(at, end, fields, &flaw)
    if at != NULL and fields.header_count:
        if fields.header_count > STEP_COUNT:
            with nogil:
                at = skip_headers(at, fields, &flaw)
        else:
            at = skip_headers(at, fields, &flaw)
    if at == NULL:
        raise error_of(flaw, index)
    if index % STEP_COUNT == STEP_COUNT - 1:
        with nogil:
            pass
    return 0


def check_records(payload, int32_t record_count, int64_t base_timestamp):
    cdef Py_buffer view
    cdef const uint8_t *at
    cdef const uint8_t *end
    cdef Fields fields
    cdef int32_t index, null_keys = 0, offset_delta_of_max = -1
    cdef int64_t timestamp, max_timestamp = NO_TIMESTAMP, min_timestamp = NO_TIMESTAMP
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        check_count(view.len, record_count)
        at = <const uint8_t *>view.buf
        end = at + view.len
        for index in range(record_count):
            pass_record(at, end, &fields, index)
            at = fields.end
            if fields.offset_delta != index:
                raise InvalidRecord(f"record {index} has offset delta {fields.offset_delta}, expected {index}")
            null_keys += fields.key.size < 0
            timestamp = add64(base_timestamp, fields.timestamp_delta)
            if timestamp == NO_TIMESTAMP:
                continue
            if timestamp > max_timestamp:
                max_timestamp = timestamp
                offset_delta_of_max = index
            if min_timestamp == NO_TIMESTAMP or timestamp < min_timestamp:
                min_timestamp = timestamp
        check_all_read(at, end, record_count)
    finally:
        PyBuffer_Release(&view)
    return CheckedRecords(max_timestamp, offset_delta_of_max, null_keys, min_timestamp)


def find_refused(
    payload,
    int32_t record_count,
    int64_t base_timestamp,
    bint require_keys,
    int64_t earliest,
    int64_t latest,
    int32_t limit,
):
    cdef Py_buffer view
    cdef const uint8_t *at
    cdef const uint8_t *end
    cdef Fields fields
    cdef int32_t index, total = 0, out_of_range = 0
    cdef int64_t timestamp
    cdef bint lacks_key
    cdef list found = []
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        check_count(view.len, record_count)
        at = <const uint8_t *>view.buf
        end = at + view.len
        for index in range(record_count):
            pass_record(at, end, &fields, index)
            at = fields.end
            timestamp = add64(base_timestamp, fields.timestamp_delta)
            lacks_key = require_keys and fields.key.size < 0
            if not lacks_key:
                if timestamp == NO_TIMESTAMP or earliest <= timestamp <= latest:
                    continue
                out_of_range += 1
            total += 1
            if total <= limit:
                found.append((index, None if lacks_key else timestamp))
    finally:
        PyBuffer_Release(&view)
    return found, total, out_of_range


cdef struct BatchTimes:
    int64_t base_offset
    int64_t base_timestamp
    int64_t append_time
    bint is_append_time
    int32_t record_count


cdef int read_times(BatchTimes *times, header) except -1:
    times.base_offset = header.base_offset
    times.base_timestamp = header.base_timestamp
    times.append_time = header.max_timestamp
    times.is_append_time = (<int>header.attributes) & TIMESTAMP_TYPE_MASK
    times.record_count = header.record_count
    return 0


def find_timestamp(payload, header, int64_t timestamp, int64_t start_offset):
    cdef Py_buffer view
    cdef const uint8_t *at
    cdef const uint8_t *end
    cdef Fields fields
    cdef BatchTimes times
    cdef int32_t index
    cdef int64_t offset, found
    read_times(&times, header)
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        check_count(view.len, times.record_count)
        at = <const uint8_t *>view.buf
        end = at + view.len
        for index in range(times.record_count):
            pass_record(at, end, &fields, index)
            at = fields.end
            offset = add64(times.base_offset, fields.offset_delta)
            found = times.append_time if times.is_append_time else add64(times.base_timestamp, fields.timestamp_delta)
            if found >= timestamp and offset >= start_offset:
                return found, offset
    finally:
        PyBuffer_Release(&view)
    return None


def find_newest(payload, header):
    cdef Py_buffer view
    cdef const uint8_t *at
    cdef const uint8_t *end
    cdef Fields fields
    cdef BatchTimes times
    cdef int32_t index
    cdef int64_t found, newest = 0, newest_offset = -1
    read_times(&times, header)
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        check_count(view.len, times.record_count)
        at = <const uint8_t *>view.buf
        end = at + view.len
        for index in range(times.record_count):
            pass_record(at, end, &fields, index)
            at = fields.end
            found = times.append_time if times.is_append_time else add64(times.base_timestamp, fields.timestamp_delta)
            if index == 0 or found > newest:
                newest, newest_offset = found, add64(times.base_offset, fields.offset_delta)
    finally:
        PyBuffer_Release(&view)
    return (newest, newest_offset) if times.record_count else None


def decode(payload, header):
    return decode_part(payload, header, 0, 0, INT32_MAX)[0]


def decode_part(payload, header, Py_ssize_t position, int32_t first, int32_t count):
    cdef Py_buffer view
    cdef const uint8_t *at
    cdef const uint8_t *end
    cdef Fields fields
    cdef Flaw flaw = SOUND
    cdef BatchTimes times
    cdef int32_t index, stop
    cdef list records = []
    read_times(&times, header)
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        check_count(view.len, times.record_count)
        if not (0 <= position <= view.len and 0 <= first <= times.record_count and count >= 0):
            raise ValueError("a part lies within its batch")
        stop = first + min(count, times.record_count - first)
        at = <const uint8_t *>view.buf + position
        end = <const uint8_t *>view.buf + view.len
        for index in range(first, stop):
            at = enter_record(at, end, &fields, &flaw)
            if at == NULL:
                raise error_of(flaw, index)
            records.append(make_record(at, &fields, &times, index))
            at = fields.end
        if stop == times.record_count:
            check_all_read(at, end, times.record_count)
        position = at - <const uint8_t *>view.buf
    finally:
        PyBuffer_Release(&view)
    return records, position


cdef object make_record(const uint8_t *headers_at, const Fields *fields, const BatchTimes *times, int32_t index):
    cdef int64_t timestamp = times.append_time
    if not times.is_append_time:
        timestamp = add64(times.base_timestamp, fields.timestamp_delta)
    cdef PyObject *made = new_named_tuple(<PyObject *>Record, 5)
    try:
        set_item(made, 0, new_int(add64(times.base_offset, fields.offset_delta)))
        set_item(made, 1, new_int(timestamp))
        set_item(made, 2, nullable_bytes(&fields.key))
        set_item(made, 3, nullable_bytes(&fields.value))
        set_item(made, 4, make_headers(headers_at, fields, index))
        return <object>made
    finally:
        Py_DECREF(made)


cdef inline PyObject *nullable_bytes(const Span *span) except NULL:
    if span.size >= 0:
        return new_bytes(<const char *>span.data, span.size)
    Py_INCREF(<PyObject *>None)
    return <PyObject *>None


cdef PyObject *make_headers(const uint8_t *at, const Fields *fields, int32_t index) except NULL:
    """A new tuple of (key, value). The bytes of the record bound the number of headers, so it is no mere claim."""
    cdef PyObject *headers = new_tuple(fields.header_count)
    cdef PyObject *pair
    cdef Span key, value
    cdef Flaw flaw = SOUND
    cdef int32_t number
    try:
        for number in range(fields.header_count):
            at = read_header(at, fields.end, &key, &value, &flaw)
            if at == NULL:
                raise error_of(flaw, index)
            pair = new_tuple(2)
            set_item(headers, number, pair)
            set_item(pair, 0, new_text(<const char *>key.data, key.size, "surrogateescape"))
            set_item(pair, 1, nullable_bytes(&value))
        if leave_record(at, fields, &flaw) == NULL:
            raise error_of(flaw, index)
    except BaseException:
        Py_DECREF(headers)
        raise
    return headers


# ------------------------------------------------------------------------------------------------------ columns


cdef struct Store:  # bytes that grow
    uint8_t *data
    size_t size
    size_t capacity


cdef inline bint reserve(Store *store, size_t more) noexcept:
    """Make room for `more` bytes; false if there is no memory."""
    return store.capacity - store.size >= more or grow(store, more)


cdef bint grow(Store *store, size_t more) noexcept:
    return grow_to(store, max(store.size + more, 2 * store.capacity, <size_t>64), SHELF_BYTES)


cdef bint grow_to(Store *store, size_t capacity, size_t max_capacity) noexcept:
    """Move what is stored to a block of `capacity` bytes, or a larger one of the shelf, up to `max_capacity`."""
    cdef Store block
    cdef void *moved
    if take_from_shelf(&block, capacity, max_capacity) or take_from_drawer(&block, capacity):
        if store.size:
            memcpy(block.data, store.data, store.size)
        block.size = store.size
        give_up(store.data, store.capacity)
        store[0] = block
        return True
    moved = realloc(store.data, capacity)
    if moved == NULL:
        return False
    store.data = <uint8_t *>moved
    store.capacity = capacity
    return True


# Memory new to the process costs a page fault every 4 KiB, more than decoding what goes there. So a few large blocks
# that columns and builders have left are kept for the next ones. Touched only with the interpreter's lock held.
cdef enum:
    SHELF_SLOTS = 16
    SHELF_BYTES = 33554432
    SHELF_MIN_BLOCK_BYTES = 65536

cdef Store shelf[SHELF_SLOTS]
cdef size_t shelf_bytes = 0


cdef bint take_from_shelf(Store *store, size_t capacity, size_t max_capacity) noexcept:
    """Move the largest block of such a capacity into `store`; false if there is none, or no need of one."""
    global shelf_bytes
    cdef int slot, best = -1
    if capacity < SHELF_MIN_BLOCK_BYTES:
        return False
    for slot in range(SHELF_SLOTS):
        if capacity <= shelf[slot].capacity <= max_capacity:
            best = slot
            capacity = shelf[slot].capacity
    if best < 0:
        return False
    store[0] = shelf[best]
    shelf[best].data = NULL
    shelf[best].capacity = 0
    shelf_bytes -= capacity
    return True


# The same for smaller blocks, which a producer with many partitions needs by the thousand: one drawer for each size, and
# in each block that lies there the address of the one below.
cdef enum:
    DRAWER_STEP_BYTES = 8192
    DRAWERS = 8
    DRAWER_BYTES = 16777216

cdef uint8_t *drawers[DRAWERS]
cdef size_t drawer_bytes = 0


cdef inline bint has_drawer(size_t capacity) noexcept:
    return 0 < capacity < SHELF_MIN_BLOCK_BYTES and capacity % DRAWER_STEP_BYTES == 0


cdef bint take_from_drawer(Store *store, size_t capacity) noexcept:
    """Move a block of just this capacity into `store`; false if there is none."""
    global drawer_bytes
    cdef size_t drawer = capacity // DRAWER_STEP_BYTES
    if not has_drawer(capacity) or drawers[drawer] == NULL:
        return False
    store.data = drawers[drawer]
    store.capacity = capacity
    memcpy(&drawers[drawer], store.data, sizeof(uint8_t *))
    drawer_bytes -= capacity
    return True


cdef void give_up(uint8_t *data, size_t capacity) noexcept:
    """Free a block, or keep it for later."""
    global shelf_bytes, drawer_bytes
    cdef int slot
    if has_drawer(capacity) and capacity <= DRAWER_BYTES - drawer_bytes:
        memcpy(data, &drawers[capacity // DRAWER_STEP_BYTES], sizeof(uint8_t *))
        drawers[capacity // DRAWER_STEP_BYTES] = data
        drawer_bytes += capacity
        return
    if capacity >= SHELF_MIN_BLOCK_BYTES and capacity <= SHELF_BYTES - shelf_bytes:
        for slot in range(SHELF_SLOTS):
            if shelf[slot].data == NULL:
                shelf[slot].data = data
                shelf[slot].size = 0
                shelf[slot].capacity = capacity
                shelf_bytes += capacity
                return
    free(data)


cdef class Memory:
    """Owns bytes that a `Store` gathered, and shows them through the buffer protocol."""
    cdef Store store
    cdef bint is_writable

    def __dealloc__(self):
        give_up(self.store.data, self.store.capacity)

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.store.data, self.store.size, not self.is_writable, flags)

    def __len__(self):
        return self.store.size


cdef Memory take(Store *store):
    """Hand over what is in the store, and leave it empty. Room that was never used is given back if it is much."""
    cdef Memory memory = Memory.__new__(Memory)
    cdef void *trimmed
    if not reserve(store, 1):  # so that even no bytes have an address
        raise MemoryError()
    if store.capacity > 2 * store.size + SHELF_MIN_BLOCK_BYTES:
        trimmed = realloc(store.data, store.size + 1)
        if trimmed != NULL:
            store.data = <uint8_t *>trimmed
            store.capacity = store.size + 1
    memory.store = store[0]
    store.data = NULL
    store.size = 0
    store.capacity = 0
    return memory


cdef struct BinaryStore:
    size_t count
    size_t null_count
    Store validity
    Store offsets  # int32 each, one more than there are items
    Store data


cdef int start_binary(BinaryStore *column) except -1:
    column.count = 0
    column.null_count = 0
    if not push32(&column.offsets, 0):
        raise MemoryError()
    return 0


cdef inline bint push32(Store *store, int32_t value) noexcept:
    if not reserve(store, 4):
        return False
    (<int32_t *>(store.data + store.size))[0] = value
    store.size += 4
    return True


cdef inline bint push64(Store *store, int64_t value) noexcept:
    if not reserve(store, 8):
        return False
    (<int64_t *>(store.data + store.size))[0] = value
    store.size += 8
    return True


cdef inline bint push_span(BinaryStore *column, const Span *span) noexcept:
    cdef size_t byte = column.count >> 3
    cdef uint8_t bit = <uint8_t>(1 << (column.count & 7))
    if column.count & 7 == 0:
        if not reserve(&column.validity, 1):
            return False
        column.validity.data[byte] = 0
        column.validity.size = byte + 1
    if span.size < 0:
        column.null_count += 1
        column.validity.data[byte] &= ~bit  # an append that was undone may have left it set
    else:
        if not reserve(&column.data, span.size):
            return False
        column.validity.data[byte] |= bit
        if span.size:  # else there may be no address to copy to
            memcpy(column.data.data + column.data.size, span.data, span.size)
            column.data.size += span.size
    column.count += 1
    return push32(&column.offsets, <int32_t>column.data.size)


cdef struct BinaryMark:
    size_t count
    size_t null_count
    size_t data_size


cdef BinaryMark mark_binary(const BinaryStore *column) noexcept:
    cdef BinaryMark mark
    mark.count = column.count
    mark.null_count = column.null_count
    mark.data_size = column.data.size
    return mark


cdef void undo_binary(BinaryStore *column, const BinaryMark *mark) noexcept:
    column.count = mark.count
    column.null_count = mark.null_count
    column.data.size = mark.data_size
    column.offsets.size = 4 * (mark.count + 1)
    column.validity.size = (mark.count + 7) // 8


cdef object take_binary(BinaryStore *column):
    cdef size_t count = column.count, null_count = column.null_count
    return BinaryColumn(count, null_count, take(&column.validity), take(&column.offsets), take(&column.data))


cdef void free_binary(BinaryStore *column) noexcept:
    give_up(column.validity.data, column.validity.capacity)
    give_up(column.offsets.data, column.offsets.capacity)
    give_up(column.data.data, column.data.capacity)


cdef class Columns:
    """Grows Arrow buffers record by record; `finish` hands them over, and the columns are spent."""
    cdef Store offsets
    cdef Store timestamps
    cdef BinaryStore keys
    cdef BinaryStore values
    cdef Store header_offsets
    cdef BinaryStore header_keys
    cdef BinaryStore header_values
    cdef Py_ssize_t size_bytes

    def __cinit__(self):
        start_binary(&self.keys)
        start_binary(&self.values)
        start_binary(&self.header_keys)
        start_binary(&self.header_values)
        if not push32(&self.header_offsets, 0):
            raise MemoryError()

    def __dealloc__(self):
        give_up(self.offsets.data, self.offsets.capacity)
        give_up(self.timestamps.data, self.timestamps.capacity)
        free_binary(&self.keys)
        free_binary(&self.values)
        give_up(self.header_offsets.data, self.header_offsets.capacity)
        free_binary(&self.header_keys)
        free_binary(&self.header_values)

    cdef inline bint has_room(self, size_t max_count) noexcept:
        return self.size_bytes < CHUNK_BYTES and self.keys.count < max_count

    cdef inline bint push(
        self, const uint8_t *headers_at, const Fields *fields, int64_t offset, int64_t timestamp, Flaw *flaw
    ) noexcept:
        """False if the headers are bad, and then nothing was pushed; or if there is no memory, and then all is lost."""
        if fields.header_count and not self.push_headers(headers_at, fields, flaw):
            return False
        if (
            push64(&self.offsets, offset)
            and push64(&self.timestamps, timestamp)
            and push_span(&self.keys, &fields.key)
            and push_span(&self.values, &fields.value)
            and push32(&self.header_offsets, <int32_t>self.header_keys.count)
        ):
            return True
        flaw[0] = NO_MEMORY
        return False

    cdef bint push_headers(self, const uint8_t *at, const Fields *fields, Flaw *flaw) noexcept:
        cdef Span key, value
        cdef BinaryMark keys = mark_binary(&self.header_keys), values = mark_binary(&self.header_values)
        for _ in range(fields.header_count):
            at = read_header(at, fields.end, &key, &value, flaw)
            if at == NULL:
                break
            if not (push_span(&self.header_keys, &key) and push_span(&self.header_values, &value)):
                flaw[0] = NO_MEMORY
                return False
        if at != NULL and leave_record(at, fields, flaw) != NULL:
            return True
        undo_binary(&self.header_keys, &keys)
        undo_binary(&self.header_values, &values)
        return False

    def finish(self):
        return ColumnBuffers(
            self.keys.count,
            take(&self.offsets),
            take(&self.timestamps),
            take_binary(&self.keys),
            take_binary(&self.values),
            take(&self.header_offsets),
            take_binary(&self.header_keys),
            take_binary(&self.header_values),
        )


# ------------------------------------------------------------------------------------------------------ fetched data


include "_cursor.pxi"


# ------------------------------------------------------------------------------------------------------ building


cdef inline uint64_t zigzag(int64_t value) noexcept nogil:
    return (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)


cdef inline int varint_size(uint64_t bits) noexcept nogil:
    cdef int size = 1
    while bits > 0x7f:
        bits >>= 7
        size += 1
    return size


cdef inline uint8_t *put_varint(uint8_t *at, uint64_t bits) noexcept nogil:
    while bits > 0x7f:
        at[0] = <uint8_t>(bits & 0x7f | 0x80)
        at += 1
        bits >>= 7
    at[0] = <uint8_t>bits
    return at + 1


cdef struct Lent:  # bytes of an object, kept in place until `give_back`
    Py_buffer view
    bint is_view
    Span span


cdef inline int borrow(Lent *lent, item) except -1:
    """Point at the bytes of `item`, which must be held in a variable, or it is gone before it is read."""
    lent.is_view = False
    if item is None:
        lent.span.data = NULL
        lent.span.size = -1
    elif PyBytes_CheckExact(item):
        lent.span.data = <const uint8_t *>PyBytes_AS_STRING(item)
        lent.span.size = PyBytes_GET_SIZE(item)
    else:
        PyObject_GetBuffer(item, &lent.view, PyBUF_SIMPLE)
        lent.is_view = True
        lent.span.data = <const uint8_t *>lent.view.buf
        lent.span.size = lent.view.len
    if lent.span.size > MAX_BATCH_BYTES:
        give_back(lent)
        raise MessageTooLarge(f"a batch holds at most {MAX_BATCH_BYTES} bytes")
    return 0


cdef inline void give_back(Lent *lent) noexcept:
    if lent.is_view:
        PyBuffer_Release(&lent.view)


cdef inline size_t span_size(const Span *span) noexcept nogil:
    return varint_size(zigzag(span.size)) + <size_t>max(<Py_ssize_t>0, span.size)


cdef inline uint8_t *put_span(uint8_t *at, const Span *span) noexcept nogil:
    at = put_varint(at, zigzag(span.size))
    if span.size > 0:
        memcpy(at, span.data, span.size)
        at += span.size
    return at


# ------------------------------------------------------------------------------------------------------ rows

# Rows are columns on their way into batches. Arrow's buffers are taken as they are; each row is read through `read_row`,
# which checks that it points inside them.

cdef Py_ssize_t MAX_ITEMS = 1 << 56  # of one column: positions in bytes do not overflow

cdef enum:
    NO_PARTITION = -1
    TYPICAL_OVERHEAD = 12
    SMALL_FILL_BYTES = 16384  # below this, rows are encoded before other threads would notice

cdef struct BytesSource:
    bint exists
    Py_ssize_t first
    Py_ssize_t count
    const uint8_t *validity
    const uint8_t *offsets
    int offset_bytes
    Py_ssize_t item_bytes
    const uint8_t *data
    Py_ssize_t data_size
    Py_ssize_t used_size  # of the data, by these items, as far as their first and last offset can be believed

cdef struct ListSource:
    bint exists
    Py_ssize_t first
    const uint8_t *validity
    const uint8_t *offsets
    int offset_bytes

cdef struct Row:
    int64_t timestamp
    Span key
    Span value
    Py_ssize_t first_header
    Py_ssize_t header_count
    size_t headers_size


cdef inline bint is_null(const uint8_t *validity, Py_ssize_t index) noexcept nogil:
    return validity != NULL and not validity[index >> 3] >> (index & 7) & 1


cdef inline int64_t load_offset(const uint8_t *offsets, int offset_bytes, Py_ssize_t index) noexcept nogil:
    cdef int64_t wide
    cdef int32_t narrow
    if offset_bytes == 8:
        memcpy(&wide, offsets + 8 * index, 8)
        return wide
    memcpy(&narrow, offsets + 4 * index, 4)
    return narrow


cdef inline bint read_item(const BytesSource *source, Py_ssize_t index, Span *span) noexcept nogil:
    """The bytes of item `index`, which the caller has checked; false if they would lie outside the data."""
    cdef int64_t start, end
    index += source.first
    span.data = NULL
    span.size = -1
    if not source.exists or is_null(source.validity, index):
        return True
    if source.offsets == NULL:
        span.data = source.data + index * source.item_bytes
        span.size = source.item_bytes
        return True
    start = load_offset(source.offsets, source.offset_bytes, index)
    end = load_offset(source.offsets, source.offset_bytes, index + 1)
    if start < 0 or end < start or end > source.data_size or end - start > MAX_BATCH_BYTES:
        return False
    span.data = source.data + start
    span.size = end - start
    return True


cdef class RowSource:
    cdef list held  # what the pointers point into
    cdef Py_ssize_t rows
    cdef int64_t now_ms
    cdef BytesSource keys
    cdef BytesSource values
    cdef ListSource headers
    cdef BytesSource header_keys
    cdef BytesSource header_values
    cdef const uint8_t *timestamps
    cdef const uint8_t *timestamps_validity
    cdef Py_ssize_t first_timestamp

    def __cinit__(self, buffers):
        cdef Py_ssize_t row_count = buffers.row_count
        if row_count < 0 or row_count > INT32_MAX:
            raise ValueError(f"{row_count} rows: there may be up to {INT32_MAX}")
        self.held = []
        self.now_ms = buffers.now_ms
        self.take_bytes(&self.keys, buffers.keys, row_count)
        self.take_bytes(&self.values, buffers.values, row_count)
        self.take_headers(buffers.headers, row_count)
        self.take_timestamps(buffers.timestamps, row_count)
        self.rows = row_count

    @property
    def row_count(self):
        return self.rows

    cdef Py_ssize_t take_buffer(self, const uint8_t **at, buffer, Py_ssize_t size_bytes) except -1:
        """Point at a buffer of at least `size_bytes`, which stays in place as long as these rows; its real size."""
        cdef Held held = Held(buffer)
        if held.view.len < size_bytes:
            raise ValueError(f"a column's buffer has {held.view.len} bytes, its rows need {size_bytes}")
        self.held.append(held)
        at[0] = <const uint8_t *>held.view.buf
        return held.view.len

    cdef int take_validity(self, const uint8_t **at, buffer, Py_ssize_t item_count) except -1:
        if buffer is not None:
            self.take_buffer(at, buffer, (item_count + 7) // 8)
        return 0

    cdef int take_bytes(self, BytesSource *source, column, Py_ssize_t count) except -1:
        cdef Py_ssize_t end
        source.exists = column is not None
        if column is None:
            return 0
        source.first = column.first
        source.count = column.length
        source.item_bytes = column.item_bytes
        end = source.first + source.count
        check_column(source.first, source.count, count)
        self.take_validity(&source.validity, column.validity, end)
        if column.offsets is None:
            if source.item_bytes < 0 or source.item_bytes > INT32_MAX or end > INT32_MAX:
                raise ValueError(f"{end} items of {source.item_bytes} bytes")
            source.data_size = self.take_buffer(&source.data, column.data, end * source.item_bytes)
            source.used_size = source.count * source.item_bytes
        else:
            source.offset_bytes = check_offset_bytes(column.offset_bytes)
            self.take_buffer(&source.offsets, column.offsets, (end + 1) * source.offset_bytes)
            source.data_size = self.take_buffer(&source.data, column.data, 0)
            source.used_size = load_offset(source.offsets, source.offset_bytes, end) - load_offset(
                source.offsets, source.offset_bytes, source.first
            )
            source.used_size = max(<Py_ssize_t>0, min(source.used_size, source.data_size))
        return 0

    cdef int take_headers(self, column, Py_ssize_t count) except -1:
        cdef Py_ssize_t end
        self.headers.exists = column is not None
        if column is None:
            return 0
        self.headers.first = column.first
        self.headers.offset_bytes = check_offset_bytes(column.offset_bytes)
        check_column(self.headers.first, count, count)
        end = self.headers.first + count
        self.take_validity(&self.headers.validity, column.validity, end)
        self.take_buffer(&self.headers.offsets, column.offsets, (end + 1) * self.headers.offset_bytes)
        self.take_bytes(&self.header_keys, column.keys, 0)
        self.take_bytes(&self.header_values, column.values, self.header_keys.count)
        return 0

    cdef int take_timestamps(self, column, Py_ssize_t count) except -1:
        if column is None:
            return 0
        self.first_timestamp = column.first
        check_column(self.first_timestamp, count, count)
        self.take_validity(&self.timestamps_validity, column.validity, self.first_timestamp + count)
        self.take_buffer(&self.timestamps, column.data, 8 * (self.first_timestamp + count))
        return 0

    cdef inline bint read_row(self, Py_ssize_t index, Row *row) noexcept nogil:
        """Everything about a row but its headers' bytes; false if it points outside its columns."""
        row.timestamp = self.now_ms
        if self.timestamps != NULL and not is_null(self.timestamps_validity, self.first_timestamp + index):
            memcpy(&row.timestamp, self.timestamps + 8 * (self.first_timestamp + index), 8)
        row.header_count = 0
        row.headers_size = 0
        if not read_item(&self.keys, index, &row.key) or not read_item(&self.values, index, &row.value):
            return False
        return not self.headers.exists or self.measure_headers(index, row)

    cdef bint measure_headers(self, Py_ssize_t index, Row *row) noexcept nogil:
        cdef int64_t start, end, number
        cdef Span key, value
        index += self.headers.first
        if is_null(self.headers.validity, index):
            return True
        start = load_offset(self.headers.offsets, self.headers.offset_bytes, index)
        end = load_offset(self.headers.offsets, self.headers.offset_bytes, index + 1)
        if start < 0 or end < start or end > self.header_keys.count or end - start > MAX_BATCH_BYTES:
            return False
        for number in range(start, end):
            if not self.read_header(number, &key, &value):
                return False
            row.headers_size += span_size(&key) + span_size(&value)
        row.first_header = start
        row.header_count = end - start
        return True

    cdef inline bint read_header(self, Py_ssize_t number, Span *key, Span *value) noexcept nogil:
        return (
            read_item(&self.header_keys, number, key)
            and key.size >= 0
            and read_item(&self.header_values, number, value)
        )

    cdef size_t bytes_of(self, size_t count) noexcept:
        """A guess at what so many rows take as records, by the average."""
        cdef size_t used = self.keys.used_size + self.values.used_size + self.header_keys.used_size
        used += self.header_values.used_size
        return count * (used // self.rows + TYPICAL_OVERHEAD)

    def find_larger(self, Py_ssize_t limit_bytes):
        cdef Py_ssize_t index
        cdef Row row
        cdef bint is_sound = True
        with nogil:
            for index in range(self.rows):
                is_sound = self.read_row(index, &row)
                if not is_sound or HEADER_SIZE + record_size(body_size(&row, 0, 0)) > <size_t>limit_bytes:
                    break
            else:
                index = -1
        if not is_sound:
            raise bad_row(index)
        return index

    def by_partition(
        self, int32_t partition_count, partitions=None, bint use_keys=True, int32_t anywhere=NO_PARTITION
    ):
        cdef const uint8_t *wanted = NULL
        cdef Store chosen, ends, order
        cdef Py_ssize_t misplaced
        cdef Held held
        if partition_count < 1:
            raise ValueError(f"rows have no place among {partition_count} partitions")
        if anywhere < NO_PARTITION or anywhere >= partition_count:
            raise ValueError(f"rows are to go to partition {anywhere}; there are 0 to {partition_count - 1}")
        if partitions is not None:
            held = Held(partitions)
            if held.view.len < 4 * self.rows:
                raise ValueError(f"{self.rows} rows need as many partitions, not {held.view.len // 4}")
            wanted = <const uint8_t *>held.view.buf
        elif not self.keys.exists or not use_keys:
            return [(anywhere, None)] if self.rows else []
        chosen = ends = order = Store(NULL, 0, 0)
        try:
            if not (
                reserve(&chosen, 4 * self.rows)
                and reserve(&order, 4 * self.rows)
                and reserve(&ends, 8 * (<size_t>partition_count + 1))
            ):
                raise MemoryError()
            with nogil:
                misplaced = self.choose(
                    wanted, use_keys, anywhere, partition_count, <int32_t *>chosen.data, <int64_t *>ends.data
                )
                if misplaced < 0:
                    order_rows(
                        <int32_t *>chosen.data, self.rows, partition_count, <int64_t *>ends.data, <int32_t *>order.data
                    )
            if misplaced >= 0:
                raise self.no_place(misplaced, wanted, partition_count)
            order.size = 4 * self.rows
            return groups_of(<int64_t *>ends.data, partition_count, memoryview(take(&order)))
        finally:
            give_up(chosen.data, chosen.capacity)
            give_up(ends.data, ends.capacity)
            give_up(order.data, order.capacity)

    cdef Py_ssize_t choose(
        self,
        const uint8_t *wanted,
        bint use_keys,
        int32_t anywhere,
        int32_t partition_count,
        int32_t *chosen,
        int64_t *counts,
    ) noexcept nogil:
        """The partition of each row, and how many each has, those of none first. A row without place, or -1."""
        cdef Py_ssize_t index
        cdef int32_t partition
        cdef Span key
        memset(counts, 0, 8 * (<size_t>partition_count + 1))
        for index in range(self.rows):
            partition = NO_PARTITION
            if wanted != NULL:
                memcpy(&partition, wanted + 4 * index, 4)
                if partition < NO_PARTITION or partition >= partition_count:
                    return index
            if partition == NO_PARTITION and use_keys:
                if not read_item(&self.keys, index, &key):
                    return index
                if key.size >= 0:
                    partition = <int32_t>((murmur2_of(key.data, key.size) & INT32_MAX) % <uint32_t>partition_count)
            if partition == NO_PARTITION:
                partition = anywhere
            chosen[index] = partition
            counts[partition + 1] += 1
        return -1

    cdef object no_place(self, Py_ssize_t index, const uint8_t *wanted, int32_t partition_count):
        cdef int32_t partition = NO_PARTITION
        if wanted != NULL:
            memcpy(&partition, wanted + 4 * index, 4)
        if partition == NO_PARTITION:
            return bad_row(index)
        return ValueError(f"row {index} asks for partition {partition}; there are 0 to {partition_count - 1}")


cdef class Held:
    """A buffer that stays in place as long as this object lives."""
    cdef Py_buffer view
    cdef bint is_held

    def __cinit__(self, buffer):
        PyObject_GetBuffer(buffer, &self.view, PyBUF_SIMPLE)
        self.is_held = True

    def __dealloc__(self):
        if self.is_held:
            PyBuffer_Release(&self.view)


cdef int check_column(Py_ssize_t first, Py_ssize_t count, Py_ssize_t row_count) except -1:
    if first < 0 or count < row_count or count > MAX_ITEMS or first > MAX_ITEMS:
        raise ValueError(f"a column of {count} items from item {first} on does not serve {row_count} rows")
    return 0


cdef int check_offset_bytes(int offset_bytes) except -1:
    if offset_bytes != 4 and offset_bytes != 8:
        raise ValueError(f"offsets of {offset_bytes} bytes; Arrow has 4 and 8")
    return offset_bytes


cdef object bad_row(Py_ssize_t index):
    return InvalidRecord(f"row {index} points outside its columns, has a header without a key, or 2 GiB in a field")


cdef void order_rows(
    const int32_t *chosen, Py_ssize_t rows, int32_t partition_count, int64_t *ends, int32_t *order
) noexcept nogil:
    """Write the rows into `order`, partition after partition. `ends` comes as counts and becomes where each ends."""
    cdef Py_ssize_t index
    cdef int64_t count, start = 0
    for index in range(partition_count + 1):
        count = ends[index]
        ends[index] = start
        start += count
    for index in range(rows):
        order[ends[chosen[index] + 1]] = <int32_t>index
        ends[chosen[index] + 1] += 1


cdef list groups_of(const int64_t *ends, int32_t partition_count, order):
    cdef list groups = []
    cdef int64_t start = 0
    cdef Py_ssize_t slot
    for slot in range(partition_count + 1):
        if ends[slot] > start:
            groups.append((slot - 1, None if 4 * (ends[slot] - start) == len(order) else order[4 * start:4 * ends[slot]]))
            start = ends[slot]
    return groups


cdef enum Fill:
    FILLED
    NEEDS_ROOM
    BAD_ROW
    BAD_INDEX
    TOO_LARGE


cdef enum:
    FIRST_CAPACITY = 512


cdef class BatchBuilder(Appender):
    # What every record touches comes first: with many builders, each line of the processor's cache costs time.
    cdef Store records  # behind room for the header, so that a batch can be sealed where it is
    cdef int32_t count
    cdef bint has_base_timestamp
    cdef bint is_filling  # by `append_columns`, perhaps without the interpreter's lock
    cdef int64_t next_offset_delta
    cdef int64_t base_timestamp
    cdef int64_t max_timestamp
    cdef size_t sealed_size  # 0 until then
    cdef Store headers  # the headers of the record being appended
    cdef size_t size_hint
    cdef size_t expected  # bytes that it will probably hold

    def __cinit__(self, base_timestamp=None, size_t size_hint=0, size_t expected=0):
        self.size_hint = size_hint
        self.expected = expected
        self.max_timestamp = NO_TIMESTAMP
        self.base_timestamp = NO_TIMESTAMP
        if base_timestamp is not None:
            self.has_base_timestamp = True
            self.base_timestamp = base_timestamp
        if not grow_to(&self.records, FIRST_CAPACITY, FIRST_CAPACITY):
            raise MemoryError()
        self.records.size = HEADER_SIZE

    def __dealloc__(self):
        give_up(self.records.data, self.records.capacity)
        give_up(self.headers.data, self.headers.capacity)

    @property
    def record_count(self):
        return self.count

    @property
    def size_bytes(self):
        return self.sealed_size or self.records.size

    def __sizeof__(self):
        return object.__sizeof__(self) + self.records.capacity + self.headers.capacity

    cdef int make_room(self, size_t more) except -1:
        """Double the memory, but stop on the way at the sizes that were announced, and that others can use again."""
        cdef size_t needed = self.records.size + more
        cdef size_t capacity = max(2 * self.records.capacity, self.expected, needed)
        cdef size_t max_capacity = SHELF_BYTES
        if needed <= self.size_hint:
            max_capacity = self.size_hint
        if DRAWER_STEP_BYTES // 2 < capacity < SHELF_MIN_BLOCK_BYTES:
            capacity += -capacity % DRAWER_STEP_BYTES
        if not grow_to(&self.records, max(needed, min(capacity, max_capacity)), max_capacity):
            raise MemoryError()
        return 0

    cpdef Py_ssize_t append(
        self, int64_t timestamp_ms, object key, object value, object headers=(), object offset_delta=None
    ) except -1:
        cdef Lent key_bytes, value_bytes
        cdef Row row
        cdef int64_t delta = self.next_offset_delta
        self.require_open()
        if offset_delta is not None:
            delta = offset_delta
        if delta < self.next_offset_delta or delta > INT32_MAX:
            raise ValueError(f"offset delta {delta} is not above the last one")
        row.timestamp = timestamp_ms
        row.header_count = 0
        row.headers_size = 0
        if headers is not () and headers is not None:
            self.headers.size = 0
            row.header_count = self.put_headers(headers)
            row.headers_size = self.headers.size
        borrow(&key_bytes, key)
        try:
            borrow(&value_bytes, value)
            try:
                row.key = key_bytes.span
                row.value = value_bytes.span
                self.put_record(&row, delta)
            finally:
                give_back(&value_bytes)
        finally:
            give_back(&key_bytes)
        return self.records.size

    cdef inline int require_open(self) except -1:
        if self.sealed_size:
            raise ValueError("this batch is sealed: its builder is spent")
        if self.is_filling:
            raise ValueError("another thread is appending to this batch")
        return 0

    cdef int put_record(self, const Row *row, int64_t delta) except -1:
        cdef uint64_t timestamp_bits = self.timestamp_bits(row.timestamp)
        cdef size_t body = body_size(row, timestamp_bits, zigzag(delta))
        cdef size_t size = record_size(body)
        cdef uint8_t *at
        if self.records.size + size > MAX_BATCH_BYTES:
            raise MessageTooLarge(f"a batch holds at most {MAX_BATCH_BYTES} bytes")
        if self.records.capacity - self.records.size < size:
            self.make_room(size)
        at = put_fields(self.records.data + self.records.size, row, body, timestamp_bits, zigzag(delta))
        if row.headers_size:
            memcpy(at, self.headers.data, row.headers_size)
        self.took(row.timestamp, delta, size)
        fetch_for_writing(self.records.data + self.records.size)
        return 0

    cdef inline uint64_t timestamp_bits(self, int64_t timestamp) noexcept nogil:
        if not self.has_base_timestamp:
            return 0
        return zigzag(add64(timestamp, -<uint64_t>self.base_timestamp))

    cdef inline void took(self, int64_t timestamp, int64_t delta, size_t size) noexcept nogil:
        """A record was written behind the others."""
        if not self.has_base_timestamp:
            self.has_base_timestamp = True
            self.base_timestamp = timestamp
        self.max_timestamp = max(self.max_timestamp, timestamp)
        self.next_offset_delta = delta + 1
        self.records.size += size
        self.count += 1

    def append_columns(self, RowSource source not None, Py_ssize_t start, Py_ssize_t stop, size_t limit_bytes, rows=None):
        cdef Held held
        cdef const uint8_t *order = NULL
        cdef Py_ssize_t row_count = source.rows
        cdef Py_ssize_t at = start
        cdef size_t room = 0
        cdef Fill fill = NEEDS_ROOM
        cdef int32_t row = 0
        self.require_open()
        if rows is not None:
            held = Held(rows)
            order = <const uint8_t *>held.view.buf
            row_count = held.view.len // 4
        if start < 0 or stop < start or stop > row_count:
            raise ValueError(f"rows {start} to {stop} of {row_count}")
        if stop - start > INT32_MAX - self.next_offset_delta:
            raise ValueError(f"a batch takes no {stop - start} rows after offset delta {self.next_offset_delta - 1}")
        if stop > start:
            room = min(limit_bytes - min(limit_bytes, self.records.size), source.bytes_of(stop - start))
        self.is_filling = True
        try:
            while fill == NEEDS_ROOM:
                if self.records.capacity - self.records.size < room:
                    self.make_room(room)
                if room < SMALL_FILL_BYTES:
                    fill = self.fill(source, order, &at, &row, stop, limit_bytes, &room)
                else:
                    with nogil:
                        fill = self.fill(source, order, &at, &row, stop, limit_bytes, &room)
        finally:
            self.is_filling = False
        if fill == BAD_ROW:
            raise bad_row(row)
        if fill == BAD_INDEX:
            raise ValueError(f"the order of rows names at {at} one that is not there")
        if fill == TOO_LARGE:
            raise MessageTooLarge(f"a batch holds at most {MAX_BATCH_BYTES} bytes, row {row} alone needs more")
        return at

    cdef Fill fill(
        self,
        RowSource source,
        const uint8_t *order,
        Py_ssize_t *at,
        int32_t *index,
        Py_ssize_t stop,
        size_t limit,
        size_t *room,
    ) noexcept nogil:
        """Append rows from `at` on until something stops it: `index` is that row, `room` what it needs."""
        cdef Row row
        cdef uint64_t timestamp_bits
        cdef size_t body, size
        while at[0] < stop:
            index[0] = <int32_t>at[0]
            if order != NULL:
                memcpy(index, order + 4 * at[0], 4)
                if index[0] < 0 or index[0] >= source.rows:
                    return BAD_INDEX
            if not source.read_row(index[0], &row):
                return BAD_ROW
            timestamp_bits = self.timestamp_bits(row.timestamp)
            body = body_size(&row, timestamp_bits, zigzag(self.next_offset_delta))
            size = record_size(body)
            if self.count and self.records.size + size > min(limit, <size_t>MAX_BATCH_BYTES):
                return FILLED
            if self.records.size + size > MAX_BATCH_BYTES:
                return TOO_LARGE
            if self.records.capacity - self.records.size < size:
                room[0] = size
                return NEEDS_ROOM
            if not self.put_row(source, &row, body, timestamp_bits, size):
                return BAD_ROW
            at[0] += 1
        return FILLED

    cdef inline bint put_row(
        self, RowSource source, const Row *row, size_t body, uint64_t timestamp_bits, size_t size
    ) noexcept nogil:
        cdef uint8_t *start = self.records.data + self.records.size
        cdef uint8_t *at = put_fields(start, row, body, timestamp_bits, zigzag(self.next_offset_delta))
        if row.header_count and not put_row_headers(source, row, at, start + size):
            return False
        self.took(row.timestamp, self.next_offset_delta, size)
        return True

    cdef Py_ssize_t put_headers(self, headers) except -1:
        """Encode the headers aside, so that the record's size is known before it is written."""
        cdef Py_ssize_t count = 0
        cdef Lent lent
        for key, value in headers:
            count += 1
            encoded = key.encode("utf-8", "surrogateescape")
            borrow(&lent, encoded)
            self.put_header_part(&lent.span)
            borrow(&lent, value)
            try:
                self.put_header_part(&lent.span)
            finally:
                give_back(&lent)
        return count

    cdef int put_header_part(self, const Span *span) except -1:
        cdef size_t size = span_size(span)
        if self.headers.size + size > MAX_BATCH_BYTES:
            raise MessageTooLarge(f"a batch holds at most {MAX_BATCH_BYTES} bytes")
        if not reserve(&self.headers, size):
            raise MemoryError()
        put_span(self.headers.data + self.headers.size, span)
        self.headers.size += size
        return 0

    def build(self, *, int codec=0, compression_level=None, **fields):
        cdef bytearray batch
        self.put_header(codec, **fields)
        if codec:
            # A copy, since the compressor lets go of the lock, and an append meanwhile may move our bytes.
            records = PyBytes_FromStringAndSize(
                <const char *>self.records.data + HEADER_SIZE, self.records.size - HEADER_SIZE
            )
            header = PyBytes_FromStringAndSize(<const char *>self.records.data, HEADER_SIZE)
            return compressed_batch(header, records, codec, compression_level)
        batch = PyByteArray_FromStringAndSize(<const char *>self.records.data, self.records.size)
        finish_batch(<uint8_t *>PyByteArray_AS_STRING(batch), len(batch))
        return batch

    def seal(self, *, int codec=0, compression_level=None, **fields):
        cdef size_t size = self.records.size
        cdef Memory memory
        self.put_header(codec, **fields)
        memory = take(&self.records)
        self.sealed_size = size
        if codec:
            with memoryview(memory) as view, view[:HEADER_SIZE] as header, view[HEADER_SIZE:] as records:
                return memoryview(compressed_batch(header, records, codec, compression_level))
        memory.is_writable = True
        finish_batch(memory.store.data, size)
        return memoryview(memory)

    def put_header(
        self,
        int codec,
        *,
        int64_t base_offset=0,
        int32_t leader_epoch=-1,
        int64_t producer_id=-1,
        int16_t producer_epoch=-1,
        int32_t base_sequence=-1,
        bint transactional=False,
        bint control=False,
        int timestamp_type=0,
        max_timestamp=None,
        last_offset_delta=None,
        bint delete_horizon=False,
    ):
        """Fill the room before the records with all but the length and the CRC."""
        cdef int64_t greatest = self.max_timestamp if max_timestamp is None else max_timestamp
        cdef int64_t last_delta = self.next_offset_delta - 1
        cdef int attributes = codec
        cdef uint8_t *at
        self.require_open()
        if last_offset_delta is not None:
            last_delta = last_offset_delta
        if last_delta < max(<int64_t>0, self.next_offset_delta - 1) or last_delta > INT32_MAX:
            raise ValueError("a batch needs a record, or the offset range of the records that were in it")
        attributes |= TIMESTAMP_TYPE_MASK if timestamp_type else 0
        attributes |= TRANSACTIONAL_MASK if transactional else 0
        attributes |= CONTROL_MASK if control else 0
        attributes |= DELETE_HORIZON_MASK if delete_horizon else 0
        at = self.records.data
        store64(at, <uint64_t>base_offset)
        store32(at + LEADER_EPOCH_AT, <uint32_t>leader_epoch)
        at[MAGIC_AT] = MAGIC
        store16(at + CRC_START, <uint32_t>attributes)
        store32(at + LAST_OFFSET_DELTA_AT, <uint32_t>last_delta)
        store64(at + BASE_TIMESTAMP_AT, <uint64_t>self.base_timestamp)
        store64(at + MAX_TIMESTAMP_AT, <uint64_t>greatest)
        store64(at + PRODUCER_ID_AT, <uint64_t>producer_id)
        store16(at + PRODUCER_EPOCH_AT, <uint32_t><int>producer_epoch)
        store32(at + BASE_SEQUENCE_AT, <uint32_t>base_sequence)
        store32(at + RECORD_COUNT_AT, <uint32_t>self.count)


cdef inline size_t record_size(size_t body) noexcept nogil:
    return varint_size(zigzag(body)) + body


cdef inline size_t body_size(const Row *row, uint64_t timestamp_bits, uint64_t delta_bits) noexcept nogil:
    return (
        1 + varint_size(timestamp_bits) + varint_size(delta_bits) + span_size(&row.key) + span_size(&row.value)
        + varint_size(zigzag(row.header_count)) + row.headers_size
    )


cdef inline uint8_t *put_fields(
    uint8_t *at, const Row *row, size_t body, uint64_t timestamp_bits, uint64_t delta_bits
) noexcept nogil:
    """All of a record but its headers."""
    at = put_varint(at, zigzag(body))
    at[0] = 0
    at = put_varint(at + 1, timestamp_bits)
    at = put_varint(at, delta_bits)
    at = put_span(at, &row.key)
    at = put_span(at, &row.value)
    return put_varint(at, zigzag(row.header_count))


cdef bint put_row_headers(RowSource source, const Row *row, uint8_t *at, const uint8_t *end) noexcept nogil:
    """False if they are not what they were when they were measured, which is nobody's right to change."""
    cdef Py_ssize_t number
    cdef Span key, value
    for number in range(row.first_header, row.first_header + row.header_count):
        if not source.read_header(number, &key, &value):
            return False
        if span_size(&key) + span_size(&value) > <size_t>(end - at):
            return False
        at = put_span(put_span(at, &key), &value)
    return at == end


cdef bytearray compressed_batch(header, records, int codec, compression_level):
    """The header, still without length and CRC, before the compressed records."""
    cdef bytearray batch
    cdef Lent lent
    compressed = compression.compress(codec, records, compression_level)
    borrow(&lent, compressed)
    try:
        if lent.span.size > MAX_BATCH_BYTES - HEADER_SIZE:
            raise MessageTooLarge(f"a batch holds at most {MAX_BATCH_BYTES} bytes")
        batch = PyByteArray_FromStringAndSize(NULL, HEADER_SIZE + lent.span.size)
        memcpy(PyByteArray_AS_STRING(batch) + HEADER_SIZE, lent.span.data, lent.span.size)
    finally:
        give_back(&lent)
    batch[:HEADER_SIZE] = header
    finish_batch(<uint8_t *>PyByteArray_AS_STRING(batch), len(batch))
    return batch


cdef void finish_batch(uint8_t *at, Py_ssize_t size) noexcept:
    store32(at + LENGTH_AT, <uint32_t>(size - LOG_OVERHEAD))
    store32(at + CRC_AT, crc_of(0, at + CRC_START, size - CRC_START))
