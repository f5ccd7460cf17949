/* Time: a monotonic clock in nanoseconds, CPU time of this process, and the rate of the cycle
 * counter. */
#pragma once

#include <stdint.h>

/* Nanoseconds of a clock that never jumps. About 20 ns a call, no system call. */
uint64_t clock_now_ns(void);

/* User and system time of this process so far, in nanoseconds. */
uint64_t clock_cpu_ns(void);

/* The counter that benchmarks read for cycles (x86: TSC, Arm: CNTVCT); 0 on other machines. */
uint64_t clock_cycles(void);

/* Ticks of that counter per microsecond, compared with the monotonic clock over `window_ns`; 0 if
 * there is none. */
double clock_cycles_per_us(uint64_t window_ns);
