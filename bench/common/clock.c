#include "common/clock.h"

#include <sys/resource.h>
#include <time.h>

#define NS_PER_S 1000000000ull
#define NS_PER_US 1000ull

uint64_t clock_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

static uint64_t timeval_ns(struct timeval value)
{
    return (uint64_t)value.tv_sec * NS_PER_S + (uint64_t)value.tv_usec * NS_PER_US;
}

uint64_t clock_cpu_ns(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return timeval_ns(usage.ru_utime) + timeval_ns(usage.ru_stime);
}

uint64_t clock_cycles(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    uint64_t ticks;

    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#else
    return 0;
#endif
}

double clock_cycles_per_us(uint64_t window_ns)
{
    uint64_t start_ns = clock_now_ns();
    uint64_t start_cycles = clock_cycles();
    uint64_t now_ns;

    do {
        now_ns = clock_now_ns();
    } while (now_ns - start_ns < window_ns);
    return (double)(clock_cycles() - start_cycles) * (double)NS_PER_US /
           (double)(now_ns - start_ns);
}
