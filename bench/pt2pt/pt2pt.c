#include "pt2pt/pt2pt.h"

#include "mpi/methods.h"
#include "mpi/support.h"
#include "pt2pt/content.h"
#include "pt2pt/fan.h"
#include "pt2pt/forms.h"
#include "pt2pt/overlap.h"
#include "pt2pt/processes.h"
#include "pt2pt/threads.h"

#define LATENCY .method = &method_ping_pong, .content = &content_exchange
#define STREAM .method = &method_stream, .content = &content_window
#define STREAM_BOTH .method = &method_stream_both_ways, .content = &content_window_both_ways
#define SIZES .size_min_bytes = 1, .size_max_bytes = 4u << 20
#define WINDOW .open = forms_window_open, .close = forms_window_close, .parameters = "w"
#define PERSISTENT .open = forms_persistent_open, .close = forms_persistent_close
#define PERSISTENT_WINDOW                                                                          \
    .open = forms_persistent_open_window, .close = forms_persistent_close, .parameters = "w"

const struct benchmark pt2pt_benchmarks[] = {
    {"latency", "Latency", SHAPE_PAIR, LATENCY, SIZES, .step = forms_ping_pong},
    {"bw", "Bandwidth", SHAPE_PAIR, STREAM, SIZES, WINDOW, .step = forms_window_one_way},
    {"bibw", "Bi-Directional Bandwidth", SHAPE_PAIR, STREAM_BOTH, SIZES, WINDOW,
     .step = forms_window_both_ways},
    {"latency_persistent", "Latency with persistent requests", SHAPE_PAIR, LATENCY, SIZES,
     PERSISTENT, .step = forms_persistent_ping_pong},
    {"bw_persistent", "Bandwidth with persistent requests", SHAPE_PAIR, STREAM, SIZES,
     PERSISTENT_WINDOW, .step = forms_persistent_one_way},
    {"bibw_persistent", "Bi-Directional Bandwidth with persistent requests", SHAPE_PAIR,
     STREAM_BOTH, SIZES, PERSISTENT_WINDOW, .step = forms_persistent_both_ways},
    {"multi_lat", "Multi-pair Latency", SHAPE_PAIRS, LATENCY, SIZES, .step = forms_ping_pong,
     .parameters = "p"},
    {"mbw_mr", "Multiple Bandwidth / Message Rate", SHAPE_PAIRS, &method_stream_pairs,
     &content_window, SIZES, .open = forms_window_open, .close = forms_window_close,
     .step = forms_window_one_way, .parameters = "wp"},
#ifdef HAS_THREADS
    {"latency_mt", "Multi-threaded Latency", SHAPE_PAIR, &threads_method, &threads_content, SIZES,
     .parameters = "t", .thread_level = MPI_THREAD_MULTIPLE},
    {"latency_mp", "Multi-process Latency", SHAPE_PAIR, LATENCY, SIZES, .open = processes_open,
     .close = processes_close, .step = forms_ping_pong, .parameters = "f"},
#endif
    {"overlap_send", "Overlap at the Sender", SHAPE_PAIR, &method_overlap_one, &content_one_way,
     SIZES, .start = overlap_start_send, .parameters = "c"},
    {"overlap_recv", "Overlap at the Receiver", SHAPE_PAIR, &method_overlap_one, &content_one_way,
     SIZES, .start = overlap_start_recv, .parameters = "c"},
    {"incast", "Incast Bandwidth", SHAPE_ALL, &fan_method, &content_fan_in, SIZES, .open = fan_open,
     .close = fan_close, .step = fan_in, .parameters = "w"},
    {"outcast", "Outcast Bandwidth", SHAPE_ALL, &fan_method, &content_fan_out, SIZES,
     .open = fan_open, .close = fan_close, .step = fan_out, .parameters = "w"},
    {.name = NULL},
};
