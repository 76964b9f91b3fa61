# What a consumer reads a fetched partition with; part of `_native.pyx`, and documented by its twin `_python_cursor.py`.

cdef extern from "Python.h":
    void PyObject_GC_UnTrack(PyObject *item)

cdef enum:
    CODEC_MASK = 0x07
    CHUNK_BYTES = 16777216

assert CHUNK_BYTES == model.CHUNK_BYTES

cdef int64_t MAX_OFFSET = model.MAX_OFFSET
cdef bytes ABORT_MARKER = model.ABORT_MARKER
cdef tuple TIMESTAMP_TYPES = (TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME)
cdef tuple MALFORMED = (InvalidRecord, CorruptMessage, UnsupportedCompressionType)


@cython.final
@cython.freelist(512)  # what a poll takes by default: the next one finds it here
cdef class ConsumerRecord:
    cdef readonly object topic
    cdef readonly int32_t partition
    cdef readonly int64_t offset
    cdef readonly int64_t timestamp_ms
    cdef bint is_append_time
    cdef readonly object key
    cdef readonly object value
    cdef readonly object headers
    cdef readonly int32_t leader_epoch

    def __init__(
        self,
        topic,
        int32_t partition,
        int64_t offset,
        int64_t timestamp_ms,
        timestamp_type,
        key,
        value,
        headers=(),
        int32_t leader_epoch=-1,
    ):
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.timestamp_ms = timestamp_ms
        self.is_append_time = timestamp_type
        self.key = key
        self.value = value
        self.headers = headers
        self.leader_epoch = leader_epoch

    @property
    def timestamp_type(self):
        return TIMESTAMP_TYPES[self.is_append_time]

    def replace(self, **changes):
        fields = dict(zip(ConsumerRecord.__match_args__, self.fields()))
        return ConsumerRecord(**{**fields, **changes})

    __match_args__ = (
        "topic", "partition", "offset", "timestamp_ms", "timestamp_type", "key", "value", "headers", "leader_epoch"
    )

    cdef tuple fields(self):
        return (
            self.topic,
            self.partition,
            self.offset,
            self.timestamp_ms,
            self.timestamp_type,
            self.key,
            self.value,
            self.headers,
            self.leader_epoch,
        )

    def __eq__(self, other):
        if type(other) is not ConsumerRecord:
            return NotImplemented
        return self.fields() == (<ConsumerRecord>other).fields()

    def __hash__(self):
        return hash(self.fields())

    def __repr__(self):
        pairs = zip(ConsumerRecord.__match_args__, self.fields())
        return f"ConsumerRecord({', '.join([f'{name}={value!r}' for name, value in pairs])})"

    def __reduce__(self):
        return ConsumerRecord, self.fields()


cdef struct Batch:
    int64_t size_bytes
    int32_t leader_epoch
    int32_t attributes
    int32_t last_offset_delta
    int64_t last_offset
    int64_t producer_id
    BatchTimes times


cdef struct Start:  # where a take began
    int64_t next_offset
    int32_t leader_epoch
    int64_t bytes_taken


@cython.no_gc_clear  # a cursor is whole as long as anybody can reach it
cdef class RecordCursor:
    cdef readonly object topic
    cdef readonly int32_t partition
    cdef readonly int64_t next_offset
    cdef readonly int32_t leader_epoch
    cdef readonly int64_t bytes_taken
    cdef readonly bint is_exhausted

    cdef object view
    cdef Held data  # the same bytes. The collector knows `view` by one reference, but not by this one, and leaves it alone
    cdef bint committed_only
    cdef object aborted
    cdef bint check_crcs
    cdef object max_decompressed_bytes
    cdef object read_key
    cdef object read_value
    cdef bint is_busy

    cdef Py_ssize_t position  # of the batch
    cdef list upcoming
    cdef set aborting
    cdef bint is_entered
    cdef Batch batch
    cdef bint is_open
    cdef Held payload  # of a compressed batch; the records of others are read where they are
    cdef const uint8_t *at
    cdef const uint8_t *end
    cdef int32_t left

    def __cinit__(
        self,
        data,
        topic,
        int32_t partition,
        int64_t fetch_offset,
        bint committed_only,
        aborted,
        bint check_crcs,
        max_decompressed_bytes,
        read_key=None,
        read_value=None,
    ):
        cdef Start start
        self.topic = topic
        self.partition = partition
        self.view = memoryview(data)
        self.data = Held(self.view)
        self.committed_only = committed_only
        self.aborted = aborted or ()
        self.check_crcs = check_crcs
        self.max_decompressed_bytes = max_decompressed_bytes
        self.read_key = read_key
        self.read_value = read_value
        start.next_offset = fetch_offset
        start.leader_epoch = -1
        start.bytes_taken = 0
        self.rewind(&start)
        self.look_ahead()

    def take(self, Py_ssize_t max_records):
        cdef list taken = []
        cdef Start start
        self.begin(&start)
        try:
            while len(taken) < max_records and self.open():
                self.take_records(taken, max_records)
                self.leave()
            self.look_ahead()
        except BaseException as error:
            self.failed(error, &start, len(taken) > 0)
        finally:
            self.is_busy = False
        return taken

    def take_table(self, max_records=None):
        cdef Columns columns = Columns()
        cdef size_t max_count = INT32_MAX if max_records is None else max(0, <Py_ssize_t>max_records)
        cdef Start start
        self.begin(&start)
        try:
            while columns.has_room(max_count) and self.open():
                self.take_columns(columns, max_count)
                self.leave()
            self.look_ahead()
        except BaseException as error:
            self.failed(error, &start, columns.keys.count > 0)
        finally:
            self.is_busy = False
        return columns.finish()

    cdef int begin(self, Start *start) except -1:
        if self.is_busy:
            raise ValueError("this cursor is being read already: by another thread, or by its own deserializer")
        self.is_busy = True
        start.next_offset = self.next_offset
        start.leader_epoch = self.leader_epoch
        start.bytes_taken = self.bytes_taken
        return 0

    cdef int failed(self, error, const Start *start, bint has_any) except -1:
        if isinstance(error, (*MALFORMED, RecordDeserializationError)):
            if has_any:
                return 0
            if not isinstance(error, RecordDeserializationError):
                raise self.corrupt(error) from error
        else:
            self.rewind(start)
        raise error

    cdef int rewind(self, const Start *start) except -1:
        self.next_offset = start.next_offset
        self.leader_epoch = start.leader_epoch
        self.bytes_taken = start.bytes_taken
        self.position = 0
        self.upcoming = sorted(self.aborted, key=first_offset_of, reverse=True)
        self.aborting = set()
        self.is_entered = False
        self.is_exhausted = False
        self.close()
        return 0

    # --- records --------------------------------------------------------------------------------------------------

    cdef int take_records(self, list taken, Py_ssize_t max_records) except -1:
        cdef Fields fields
        cdef const uint8_t *headers_at
        cdef int64_t offset = 0
        while self.left and len(taken) < max_records:
            headers_at = self.next_record(&fields, &offset)
            if offset >= self.next_offset:
                taken.append(self.make(headers_at, &fields, offset))
                self.bytes_taken += fields.end - self.at
                self.next_offset = offset + 1
                self.leader_epoch = self.batch.leader_epoch
            else:
                self.check_headers(headers_at, &fields)
            self.at = fields.end
            self.left -= 1
        return 0

    cdef inline const uint8_t *next_record(self, Fields *fields, int64_t *offset) except NULL:
        """Where its headers begin."""
        cdef Flaw flaw = SOUND
        cdef const uint8_t *headers_at = enter_record(self.at, self.end, fields, &flaw)
        if headers_at == NULL:
            raise error_of(flaw, self.batch.times.record_count - self.left)
        if fields.offset_delta < 0 or fields.offset_delta > self.batch.last_offset_delta:
            raise InvalidRecord(f"a record has offset delta {fields.offset_delta}, outside its batch")
        offset[0] = self.batch.times.base_offset + fields.offset_delta
        return headers_at

    cdef int check_headers(self, const uint8_t *at, const Fields *fields) except -1:
        cdef Flaw flaw = SOUND
        if fields.header_count and skip_headers(at, fields, &flaw) == NULL:
            raise error_of(flaw, self.batch.times.record_count - self.left)
        return 0

    cdef inline ConsumerRecord make(self, const uint8_t *headers_at, const Fields *fields, int64_t offset):
        cdef ConsumerRecord record = ConsumerRecord.__new__(ConsumerRecord)
        cdef PyObject *headers
        record.topic = self.topic
        record.partition = self.partition
        record.offset = offset
        record.timestamp_ms = timestamp_of(&self.batch.times, fields)
        record.is_append_time = self.batch.times.is_append_time
        record.leader_epoch = self.batch.leader_epoch
        if fields.key.size >= 0:
            record.key = PyBytes_FromStringAndSize(<const char *>fields.key.data, fields.key.size)
            if self.read_key is not None:
                record.key = self.read(self.read_key, record.key, offset, "key")
        if fields.value.size >= 0:
            record.value = PyBytes_FromStringAndSize(<const char *>fields.value.data, fields.value.size)
            if self.read_value is not None:
                record.value = self.read(self.read_value, record.value, offset, "value")
        if fields.header_count:
            headers = make_headers(headers_at, fields, self.batch.times.record_count - self.left)
            record.headers = <object>headers
            Py_DECREF(headers)
        else:
            record.headers = ()
        if self.read_key is None and self.read_value is None:
            # Bytes and texts are part of no cycle, so the collector need not look at the record.
            PyObject_GC_UnTrack(<PyObject *>record)
        return record

    cdef object read(self, reader, data, int64_t offset, field):
        try:
            return reader(data)
        except Exception as error:
            raise RecordDeserializationError(TopicPartition(self.topic, self.partition), offset, field, error) from error

    cdef int take_columns(self, Columns columns, size_t max_count) except -1:
        cdef Fields fields
        cdef const uint8_t *headers_at
        cdef int64_t offset = 0
        cdef Flaw flaw = SOUND
        while self.left and columns.has_room(max_count):
            headers_at = self.next_record(&fields, &offset)
            if offset >= self.next_offset:
                if fields.end - self.at > INT32_MAX - CHUNK_BYTES:
                    raise MessageTooLarge(f"the record at offset {offset} is too large for a table")
                if not columns.push(headers_at, &fields, offset, timestamp_of(&self.batch.times, &fields), &flaw):
                    raise error_of(flaw, self.batch.times.record_count - self.left)
                columns.size_bytes += fields.end - self.at
                self.bytes_taken += fields.end - self.at
                self.next_offset = offset + 1
                self.leader_epoch = self.batch.leader_epoch
            else:
                self.check_headers(headers_at, &fields)
            self.at = fields.end
            self.left -= 1
        return 0

    # --- batches --------------------------------------------------------------------------------------------------

    cdef int look_ahead(self) except -1:
        try:
            self.enter()
        except MALFORMED:
            pass
        return 0

    cdef bint enter(self) except -1:
        """Whether there is a batch with something to show."""
        while not (self.is_entered or self.is_exhausted):
            if not self.find_batch():
                self.is_exhausted = True
            elif self.shows_batch():
                self.is_entered = True
            else:
                self.skip()
        return self.is_entered

    cdef bint find_batch(self) except -1:
        """The batch at the position, checked; false where the data ends, or is cut off."""
        cdef Py_ssize_t rest = self.data.view.len - self.position
        cdef const uint8_t *at = <const uint8_t *>self.data.view.buf + self.position
        cdef Batch *batch = &self.batch
        batch.size_bytes = rest + 1
        if rest >= HEADER_SIZE:
            batch.size_bytes = <int64_t><int32_t>load32(at + LENGTH_AT) + LOG_OVERHEAD
            if batch.size_bytes < HEADER_SIZE or batch.size_bytes > MAX_BATCH_BYTES:
                raise CorruptMessage(f"a batch cannot have length {batch.size_bytes - LOG_OVERHEAD}")
        if batch.size_bytes > rest:
            if rest and not self.position:
                raise CorruptMessage(f"{rest} bytes without one whole batch")
            return False
        if at[MAGIC_AT] != MAGIC:
            raise CorruptMessage(
                f"it has format {<signed char>at[MAGIC_AT]}; format 2 is read, which Kafka writes since 0.11"
            )
        if self.check_crcs and crc_of(0, at + CRC_START, batch.size_bytes - CRC_START) != load32(at + CRC_AT):
            raise CorruptMessage("its CRC32C is wrong")
        read_batch(batch, at)
        if batch.last_offset_delta < 0 or not 0 <= batch.times.base_offset <= MAX_OFFSET - batch.last_offset_delta:
            raise CorruptMessage(f"offset {batch.times.base_offset} and {batch.last_offset_delta} more")
        batch.last_offset = batch.times.base_offset + batch.last_offset_delta
        return True

    cdef bint shows_batch(self) except -1:
        if self.committed_only and self.is_aborted():
            return False
        return (
            not self.batch.attributes & CONTROL_MASK
            and self.batch.last_offset >= self.next_offset
            and self.batch.times.record_count != 0
        )

    cdef bint is_aborted(self) except -1:
        while self.upcoming and first_offset_of(self.upcoming[len(self.upcoming) - 1]) <= self.batch.last_offset:
            self.aborting.add(self.upcoming.pop()[0])
        if not self.aborting or self.batch.producer_id not in self.aborting:
            return False
        if self.batch.attributes & CONTROL_MASK and self.is_abort_marker():
            self.aborting.discard(self.batch.producer_id)
        return self.batch.attributes & TRANSACTIONAL_MASK != 0

    cdef bint is_abort_marker(self) except -1:
        cdef Fields fields
        cdef Flaw flaw = SOUND
        cdef const uint8_t *headers_at
        try:
            self.open_payload()
            if not self.left:
                return False
            headers_at = enter_record(self.at, self.end, &fields, &flaw)
            if headers_at == NULL:
                raise error_of(flaw, 0)
            self.check_headers(headers_at, &fields)
            return fields.key.size >= 4 and PyBytes_FromStringAndSize(<char *>fields.key.data + 2, 2) == ABORT_MARKER
        finally:
            self.close()

    cdef void skip(self) noexcept:
        self.position += self.batch.size_bytes
        if self.batch.last_offset >= self.next_offset:
            self.next_offset = self.batch.last_offset + 1
            self.leader_epoch = self.batch.leader_epoch

    cdef bint open(self) except -1:
        if not self.enter():
            return False
        if not self.is_open:
            try:
                self.open_payload()
            except BaseException:
                self.close()
                raise
            self.is_open = True
        return True

    cdef int open_payload(self) except -1:
        cdef Py_ssize_t start = self.position + HEADER_SIZE
        cdef Py_ssize_t size = self.batch.size_bytes - HEADER_SIZE
        cdef int codec = self.batch.attributes & CODEC_MASK
        if codec:
            self.payload = Held(
                compression.decompress(codec, self.view[start : start + size], max_bytes=self.max_decompressed_bytes)
            )
            self.at = <const uint8_t *>self.payload.view.buf
            size = self.payload.view.len
        else:
            self.at = <const uint8_t *>self.data.view.buf + start
        self.end = self.at + size
        check_count(size, self.batch.times.record_count)
        self.left = self.batch.times.record_count
        return 0

    cdef int leave(self) except -1:
        if self.left == 0:
            check_all_read(self.at, self.end, self.batch.times.record_count)
            self.is_entered = False
            self.close()
            self.skip()
        return 0

    cdef void close(self) noexcept:
        self.is_open = False
        self.at = NULL
        self.end = NULL
        self.left = 0
        self.payload = None

    cdef object corrupt(self, error):
        return CorruptMessage(
            f"the batch of {self.topic}-{self.partition} at offset {self.next_offset} is damaged: {error}; seek() past"
            " it to go on without it"
        )


def first_offset_of(transaction):
    return transaction[1]


cdef void read_batch(Batch *batch, const uint8_t *at) noexcept:
    """What a reader needs of the header in the 61 bytes at `at`."""
    batch.leader_epoch = <int32_t>load32(at + LEADER_EPOCH_AT)
    batch.attributes = load16(at + CRC_START)
    batch.last_offset_delta = <int32_t>load32(at + LAST_OFFSET_DELTA_AT)
    batch.producer_id = <int64_t>load64(at + PRODUCER_ID_AT)
    batch.times.base_offset = <int64_t>load64(at)
    batch.times.base_timestamp = <int64_t>load64(at + BASE_TIMESTAMP_AT)
    batch.times.append_time = <int64_t>load64(at + MAX_TIMESTAMP_AT)
    batch.times.is_append_time = batch.attributes & TIMESTAMP_TYPE_MASK != 0
    batch.times.record_count = <int32_t>load32(at + RECORD_COUNT_AT)


cdef inline int64_t timestamp_of(const BatchTimes *times, const Fields *fields) noexcept:
    if times.is_append_time:
        return times.append_time
    return add64(times.base_timestamp, fields.timestamp_delta)
