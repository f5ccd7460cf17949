/* Collective operations of Gloo over its ibverbs transport, with data that is checked: allreduce by
 * two algorithms, and broadcast. The two ends find each other through files in a folder that is the
 * same for both.
 *
 * Usage: collectives RANK FOLDER DEVICE */
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include <unistd.h>

#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/barrier_all_to_all.h>
#include <gloo/broadcast_one_to_all.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/ibverbs/device.h>

static const int RANKS = 2;
static const int TURNS = 10;

static void expect(bool right, const char *what, size_t count)
{
    if (!right) {
        std::printf("%s of %zu elements: something else arrived\n", what, count);
        std::exit(1);
    }
}

static void allreduce(gloo::Algorithm &algorithm, std::vector<float> &data, int rank)
{
    for (int turn = 0; turn < TURNS; turn++) {
        for (size_t i = 0; i < data.size(); i++)
            data[i] = static_cast<float>(rank + turn + static_cast<int>(i % 100));
        algorithm.run();
        for (size_t i = 0; i < data.size(); i++)
            expect(data[i] == static_cast<float>(1 + RANKS * (turn + static_cast<int>(i % 100))),
                   "allreduce", data.size());
    }
}

static void broadcast(gloo::Algorithm &algorithm, std::vector<float> &data, int rank)
{
    for (size_t i = 0; i < data.size(); i++)
        data[i] = rank == 0 ? static_cast<float>(i % 7) : -1;
    algorithm.run();
    for (size_t i = 0; i < data.size(); i++)
        expect(data[i] == static_cast<float>(i % 7), "broadcast", data.size());
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    const int rank = std::atoi(argv[1]);
    gloo::rendezvous::FileStore store(argv[2]);
    auto device = gloo::transport::ibverbs::CreateDevice({argv[3], 1, 0});
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, RANKS);
    context->connectFullMesh(store, device);
    for (size_t count : {1, 1000, 1000000}) {
        /* Nothing is freed: Gloo ends a program that frees an algorithm whose sends have no
         * completion yet, and its algorithms do not wait for those. */
        auto &data = *new std::vector<float>(count);
        const int elements = static_cast<int>(count);
        allreduce(*new gloo::AllreduceHalvingDoubling<float>(context, {data.data()}, elements),
                  data, rank);
        allreduce(*new gloo::AllreduceRingChunked<float>(context, {data.data()}, elements), data,
                  rank);
        broadcast(*new gloo::BroadcastOneToAll<float>(context, {data.data()}, elements, 0), data,
                  rank);
    }
    std::puts("all data right");
    std::fflush(stdout);
    /* The other end may not have all yet, and Gloo does not say when it does. */
    (new gloo::BarrierAllToAll(context))->run();
    sleep(1);
    _exit(0);
}
