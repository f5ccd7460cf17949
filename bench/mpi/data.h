/* The data that benchmarks send: what it is, and whether what arrived is it. */
#pragma once

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct datatype {
    const char *name; /* as -T has it */
    MPI_Datatype mpi;
    MPI_Datatype number; /* the same, for operations: MPI does not add up MPI_CHAR */
    size_t bytes;
};

enum { DATATYPE_CHAR, DATATYPE_INT, DATATYPE_FLOAT, DATATYPE_COUNT };

/* A copy, because handles need not be constants. */
struct datatype datatype_of(int index);

/* The name of that datatype; NULL if there is none. */
const char *datatype_name(int index);

/* Which rank sent a block, which of its blocks it is, and in which filling of the buffers:
 * together, what is in it. */
struct origin {
    int rank;
    int block;
    uint32_t epoch;
};

/* Writes what `origin` says into a block of `size_bytes`. */
void data_fill(uint8_t *block, size_t size_bytes, struct origin origin);

/*
 * Writes numbers for a reduction: 0 or 1 in each element, so that sums are exact in every datatype
 * and fit in a signed char for up to 127 ranks.
 */
void data_fill_numbers(uint8_t *block, size_t size_bytes, const struct datatype *datatype,
                       struct origin origin);

/* Over a receive buffer: before the transfer every byte is made wrong, after it the wrong ones are
 * counted. */
struct pass {
    enum { PASS_SPOIL, PASS_CHECK } kind;
    uint32_t epoch;
    bool corrupt; /* before a check, damage what is there: the check must find it */
    size_t wrong_bytes;
};

/* This block must hold block `block` of `rank`. */
void pass_block(struct pass *pass, uint8_t *data, size_t size_bytes, int rank, int block);

/* Sums of elements `first` and following of block `block`, over ranks `begin` to `end` - 1. */
struct sums {
    int begin;
    int end;
    int block;
    int times; /* each element counts that often */
    size_t first;
};

/* These elements must hold those sums of what data_fill_numbers wrote. */
void pass_sums(struct pass *pass, uint8_t *data, size_t size_bytes, const struct datatype *datatype,
               struct sums sums);

/* There must be this number. */
void pass_number(struct pass *pass, uint8_t *data, int64_t expected);
