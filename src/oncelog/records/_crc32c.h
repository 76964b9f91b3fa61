/* CRC32C (Castagnoli), as Kafka's record batches use it, at the speed of memory.
 *
 * The CRC instruction of x86 (SSE4.2) and ARMv8 takes 8 bytes each cycle but answers three cycles later, so three
 * stretches of the data are run side by side and joined: the CRC of `AB` is that of `A` moved over the length of `B`,
 * xor that of `B`. Moving over a fixed length is linear, hence four table lookups. Without the instruction, eight
 * tables take 8 bytes a step. `oncelog_crc32c_init` picks the way once; it must run before anything else here.
 */
#ifndef ONCELOG_CRC32C_H
#define ONCELOG_CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define CRC32C_POLYNOMIAL 0x82f63b78u /* reflected */
#define CRC32C_LONG 4096u             /* bytes of one of the three stretches, where there is plenty of data */
#define CRC32C_SHORT 256u             /* and where there is less */

static uint32_t crc32c_slices[8][256];
static uint32_t crc32c_over_long[4][256];
static uint32_t crc32c_over_short[4][256];

static inline uint64_t crc32c_load64(const unsigned char *data) {
    uint64_t word;
    memcpy(&word, data, 8);
    return word;
}

static uint32_t crc32c_by_tables(uint32_t crc, const unsigned char *data, size_t size) {
    while (size >= 8) {
        uint32_t low = crc ^ ((uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24);
        crc = crc32c_slices[7][low & 0xff] ^ crc32c_slices[6][low >> 8 & 0xff] ^ crc32c_slices[5][low >> 16 & 0xff] ^
              crc32c_slices[4][low >> 24] ^ crc32c_slices[3][data[4]] ^ crc32c_slices[2][data[5]] ^
              crc32c_slices[1][data[6]] ^ crc32c_slices[0][data[7]];
        data += 8;
        size -= 8;
    }
    while (size--)
        crc = crc32c_slices[0][(crc ^ *data++) & 0xff] ^ crc >> 8;
    return crc;
}

/* What `crc` becomes when a zero byte follows. */
static uint32_t crc32c_step_byte(uint32_t crc) { return crc32c_slices[0][crc & 0xff] ^ crc >> 8; }

static inline uint32_t crc32c_move(uint32_t table[4][256], uint32_t crc) {
    return table[0][crc & 0xff] ^ table[1][crc >> 8 & 0xff] ^ table[2][crc >> 16 & 0xff] ^ table[3][crc >> 24];
}

/* The table that moves a CRC over `steps` times what `step` moves it over. */
static void crc32c_fill_over(uint32_t table[4][256], uint32_t (*step)(uint32_t), int steps) {
    uint32_t of_bit[32];
    for (int bit = 0; bit < 32; bit++) {
        of_bit[bit] = (uint32_t)1 << bit;
        for (int i = 0; i < steps; i++)
            of_bit[bit] = step(of_bit[bit]);
    }
    for (int slot = 0; slot < 4; slot++)
        for (int byte = 0; byte < 256; byte++) {
            uint32_t crc = 0;
            for (int bit = 0; bit < 8; bit++)
                if (byte >> bit & 1)
                    crc ^= of_bit[8 * slot + bit];
            table[slot][byte] = crc;
        }
}

static uint32_t crc32c_step_short(uint32_t crc) { return crc32c_move(crc32c_over_short, crc); }

#if (defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__)))
#include <nmmintrin.h>
#define CRC32C_HARDWARE 1
#define CRC32C_TARGET __attribute__((target("sse4.2")))
#define CRC32C_STEP8(crc, word) ((uint32_t)_mm_crc32_u64((crc), (word)))
#define CRC32C_STEP1(crc, byte) _mm_crc32_u8((crc), (byte))
#define CRC32C_DETECT() (__builtin_cpu_init(), __builtin_cpu_supports("sse4.2"))
#elif defined(__AARCH64EL__) && defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#define CRC32C_HARDWARE 1
#define CRC32C_TARGET
#define CRC32C_STEP8(crc, word) __crc32cd((crc), (word))
#define CRC32C_STEP1(crc, byte) __crc32cb((crc), (byte))
#define CRC32C_DETECT() 1 /* the compiler was told that every machine this runs on has it */
#endif

#ifdef CRC32C_HARDWARE

#define CRC32C_THREE_WAYS(STRETCH, TABLE)                                                       \
    while (size >= 3 * STRETCH) {                                                               \
        uint32_t second = 0, third = 0;                                                         \
        const unsigned char *end = data + STRETCH;                                              \
        do {                                                                                    \
            crc = CRC32C_STEP8(crc, crc32c_load64(data));                                       \
            second = CRC32C_STEP8(second, crc32c_load64(data + STRETCH));                       \
            third = CRC32C_STEP8(third, crc32c_load64(data + 2 * STRETCH));                     \
            data += 8;                                                                          \
        } while (data < end);                                                                   \
        crc = crc32c_move(TABLE, crc32c_move(TABLE, crc) ^ second) ^ third;                     \
        data += 2 * STRETCH;                                                                    \
        size -= 3 * STRETCH;                                                                    \
    }

CRC32C_TARGET static uint32_t crc32c_by_hardware(uint32_t crc, const unsigned char *data, size_t size) {
    CRC32C_THREE_WAYS(CRC32C_LONG, crc32c_over_long)
    CRC32C_THREE_WAYS(CRC32C_SHORT, crc32c_over_short)
    while (size >= 8) {
        crc = CRC32C_STEP8(crc, crc32c_load64(data));
        data += 8;
        size -= 8;
    }
    while (size--)
        crc = CRC32C_STEP1(crc, *data++);
    return crc;
}

#endif

static uint32_t (*crc32c_chosen)(uint32_t, const unsigned char *, size_t) = crc32c_by_tables;

static void oncelog_crc32c_init(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ CRC32C_POLYNOMIAL : crc >> 1;
        crc32c_slices[0][byte] = crc;
    }
    for (int slice = 1; slice < 8; slice++)
        for (int byte = 0; byte < 256; byte++)
            crc32c_slices[slice][byte] = crc32c_step_byte(crc32c_slices[slice - 1][byte]);
    crc32c_fill_over(crc32c_over_short, crc32c_step_byte, CRC32C_SHORT);
    crc32c_fill_over(crc32c_over_long, crc32c_step_short, CRC32C_LONG / CRC32C_SHORT);
#ifdef CRC32C_HARDWARE
    if (CRC32C_DETECT())
        crc32c_chosen = crc32c_by_hardware;
#endif
}

static inline uint32_t oncelog_crc32c(uint32_t value, const unsigned char *data, size_t size) {
    return ~crc32c_chosen(~value, data, size);
}

/* The way taken where there is no instruction for it, so that tests can compare both on one machine. */
static inline uint32_t oncelog_crc32c_by_tables(uint32_t value, const unsigned char *data, size_t size) {
    return ~crc32c_by_tables(~value, data, size);
}

#endif
