/* Factors between units. */
#pragma once

#define NS_PER_S 1e9
#define US_PER_NS 1e-3
/* bytes per nanosecond times this are 10^6 bytes per second */
#define MB_PER_S_PER_BYTE_PER_NS 1e3
