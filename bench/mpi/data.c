#include "mpi/data.h"

#include "common/pattern.h"

#include <string.h>

static const char *const names[DATATYPE_COUNT] = {"mpi_char", "mpi_int", "mpi_float"};

const char *datatype_name(int index)
{
    return index < DATATYPE_COUNT ? names[index] : NULL;
}

struct datatype datatype_of(int index)
{
    const struct datatype all[DATATYPE_COUNT] = {
        {names[0], MPI_CHAR, MPI_SIGNED_CHAR, sizeof(char)},
        {names[1], MPI_INT, MPI_INT, sizeof(int)},
        {names[2], MPI_FLOAT, MPI_FLOAT, sizeof(float)},
    };

    return all[index];
}

/* Odd multipliers far apart, so that no two origins of a run start the pattern near each other. */
static uint32_t pattern_origin(struct origin origin)
{
    return (uint32_t)origin.rank * 0x9e3779b1u + (uint32_t)origin.block * 0x85ebca77u +
           origin.epoch * 0xc2b2ae3du;
}

void data_fill(uint8_t *block, size_t size_bytes, struct origin origin)
{
    pattern_fill_from(block, size_bytes, pattern_origin(origin));
}

static int number(size_t index, struct origin origin)
{
    return pattern_byte(pattern_origin(origin) + index) >> 7;
}

static void store(uint8_t *at, const struct datatype *datatype, int value)
{
    float real = (float)value;

    if (datatype->mpi == MPI_FLOAT)
        memcpy(at, &real, sizeof real);
    else if (datatype->mpi == MPI_INT)
        memcpy(at, &value, sizeof value);
    else
        *at = (uint8_t)value;
}

void data_fill_numbers(uint8_t *block, size_t size_bytes, const struct datatype *datatype,
                       struct origin origin)
{
    for (size_t i = 0; i < size_bytes / datatype->bytes; i++)
        store(block + i * datatype->bytes, datatype, number(i, origin));
}

static void spoil(uint8_t *data, size_t size_bytes)
{
    for (size_t i = 0; i < size_bytes; i++)
        data[i] = (uint8_t)~data[i];
}

static void damage(const struct pass *pass, uint8_t *data, size_t size_bytes)
{
    if (pass->kind == PASS_CHECK && pass->corrupt && size_bytes > 0)
        data[0] ^= 1;
}

void pass_block(struct pass *pass, uint8_t *data, size_t size_bytes, int rank, int block)
{
    uint32_t origin = pattern_origin((struct origin){rank, block, pass->epoch});

    damage(pass, data, size_bytes);
    if (pass->kind == PASS_CHECK) {
        pass->wrong_bytes += pattern_wrong_bytes(data, size_bytes, origin);
        return;
    }
    pattern_fill_from(data, size_bytes, origin);
    spoil(data, size_bytes);
}

static void pass_value(struct pass *pass, uint8_t *at, const void *expected, size_t size_bytes)
{
    if (pass->kind == PASS_CHECK) {
        pass->wrong_bytes += memcmp(at, expected, size_bytes) == 0 ? 0 : size_bytes;
        return;
    }
    memcpy(at, expected, size_bytes);
    spoil(at, size_bytes);
}

void pass_sums(struct pass *pass, uint8_t *data, size_t size_bytes, const struct datatype *datatype,
               struct sums sums)
{
    damage(pass, data, size_bytes);
    for (size_t i = 0; i < size_bytes / datatype->bytes; i++) {
        uint8_t *at = data + i * datatype->bytes;
        uint8_t expected[sizeof(float)];
        int sum = 0;

        for (int rank = sums.begin; rank < sums.end; rank++)
            sum += number(sums.first + i, (struct origin){rank, sums.block, pass->epoch});
        store(expected, datatype, sum * sums.times);
        pass_value(pass, at, expected, datatype->bytes);
    }
}

void pass_number(struct pass *pass, uint8_t *data, int64_t expected)
{
    damage(pass, data, sizeof expected);
    pass_value(pass, data, &expected, sizeof expected);
}
