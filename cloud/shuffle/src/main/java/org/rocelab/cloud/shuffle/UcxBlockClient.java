// Spark's interface to whatever fetches blocks, in front of UCX.
package org.rocelab.cloud.shuffle;

import com.codahale.metrics.MetricSet;
import java.io.IOException;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import org.apache.spark.network.shuffle.BlockFetchingListener;
import org.apache.spark.network.shuffle.BlockStoreClient;
import org.apache.spark.network.shuffle.DownloadFileManager;
import org.apache.spark.network.shuffle.checksum.Cause;

/** Fetches over UCX; everything else Spark's own client does as before. */
final class UcxBlockClient extends BlockStoreClient {
    private final UcxTransport transport;
    private final BlockStoreClient own;

    UcxBlockClient(UcxTransport transport, BlockStoreClient own) {
        this.transport = transport;
        this.own = own;
    }

    @Override
    public void fetchBlocks(
            String host,
            int port,
            String executor,
            String[] names,
            BlockFetchingListener listener,
            DownloadFileManager files) {
        transport.fetch(executor, names, listener);
    }

    @Override
    public void getHostLocalDirs(
            String host, int port, String[] executors, CompletableFuture<Map<String, String[]>> answer) {
        own.getHostLocalDirs(host, port, executors, answer);
    }

    @Override
    public Cause diagnoseCorruption(
            String host, int port, String executor, int shuffle, long map, int reduce, long checksum, String algorithm) {
        return own.diagnoseCorruption(host, port, executor, shuffle, map, reduce, checksum, algorithm);
    }

    @Override
    public MetricSet shuffleMetrics() {
        return own.shuffleMetrics();
    }

    @Override
    public void close() throws IOException {
        own.close();
    }
}
