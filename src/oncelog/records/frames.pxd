# Types for the compiled form of frames.py; the module runs without it, slower.

cimport cython

cdef long long GZIP_MAX_RATIO, SNAPPY_MAX_RATIO, LZ4_MAX_RATIO, ZSTD_MAX_BLOCK_BYTES
cdef int GZIP_LEAST_BYTES
cdef unsigned int LZ4_MAGIC, LZ4_STORED, ZSTD_MAGIC, SKIPPABLE_MAGIC, SKIPPABLE_MASK
cdef int LZ4_VERSION_MASK, LZ4_VERSION_1, LZ4_LEAST_BLOCK_CODE
cdef int LZ4_INDEPENDENT, LZ4_BLOCK_CHECKSUM, LZ4_CONTENT_SIZE, LZ4_CONTENT_CHECKSUM, LZ4_DICTIONARY
cdef int ZSTD_SINGLE_SEGMENT, ZSTD_CHECKSUM, ZSTD_RUN_BLOCK, ZSTD_COMPRESSED_BLOCK


@cython.locals(view="const unsigned char[:]", size="long long", told="unsigned int")
cpdef gzip_bound(object data, bint for_all)

@cython.locals(
    view="const unsigned char[:]", end="long long", position="long long", size="unsigned int", total="long long"
)
cpdef snappy_bound(object data, bint for_all)

@cython.locals(size="long long", shift="int", position="long long", byte="long long")
cdef long long _snappy_block_size(const unsigned char[:] view, long long start, long long end) except -1

@cython.locals(
    view="const unsigned char[:]", end="long long", position="long long", magic="unsigned int", total="long long"
)
cpdef lz4_bound(object data, bint for_all)

@cython.locals(
    flags="int",
    code="int",
    max_block_bytes="long long",
    after_block="int",
    total="long long",
    size="unsigned int",
    is_stored="unsigned int",
)
cdef tuple _lz4_frame(const unsigned char[:] view, long long position, long long end, bint for_all)

@cython.locals(
    view="const unsigned char[:]", end="long long", position="long long", magic="unsigned int", total="long long"
)
cpdef zstd_bound(object data)

@cython.locals(
    descriptor="int",
    is_single="int",
    size_code="int",
    dictionary_code="int",
    size_bytes="int",
    index="int",
    told="long long",
    total="long long",
    is_last="int",
    kind="int",
    size="long long",
    block="unsigned int",
)
cdef tuple _zstd_frame(const unsigned char[:] view, long long position, long long end)

@cython.locals(size="unsigned int")
cdef long long _after_skippable(const unsigned char[:] view, long long position, long long end) except -1
