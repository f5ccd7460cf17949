// A Spark plugin that has shuffle blocks fetched over UCX instead of Netty. UCX_TLS says over
// what UCX talks.
package org.rocelab.cloud.shuffle;

import java.io.IOException;
import java.io.Serializable;
import java.lang.reflect.Field;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkEnv;
import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.api.plugin.SparkPlugin;
import org.apache.spark.network.shuffle.BlockStoreClient;
import org.apache.spark.storage.BlockManager;

/**
 * {@code spark.plugins=org.rocelab.cloud.shuffle.UcxShufflePlugin}. Executors tell the driver the address of their UCX
 * worker, and ask it for those of others: no port has to be chosen or listened on. Each connects at once to those that
 * are there before it, so that the first block of a shuffle does not wait for queue pairs to be set up.
 */
public final class UcxShufflePlugin implements SparkPlugin {
    /**
     * What an executor tells the driver, to hear the addresses of all that are there; or asks it for (then {@code address}
     * is null), to hear that address.
     */
    record Place(String executor, byte[] address) implements Serializable {
        private static final long serialVersionUID = 1L;
    }

    /** How many bytes of blocks an executor has fetched so far. */
    record Moved(String executor, long bytes) implements Serializable {
        private static final long serialVersionUID = 1L;
    }

    private static final Map<String, Long> MOVED_BYTES = new ConcurrentHashMap<>();

    /** In the driver: the bytes of blocks that all executors have fetched over UCX, as far as they have told. */
    public static long movedBytes() {
        return MOVED_BYTES.values().stream().mapToLong(Long::longValue).sum();
    }

    @Override
    public DriverPlugin driverPlugin() {
        return new Driver();
    }

    @Override
    public ExecutorPlugin executorPlugin() {
        return new Executor();
    }

    /** Keeps the addresses. */
    private static final class Driver implements DriverPlugin {
        private final Map<String, byte[]> addresses = new ConcurrentHashMap<>();

        @Override
        public Map<String, String> init(SparkContext context, PluginContext plugin) {
            MOVED_BYTES.clear();
            return Map.of();
        }

        @Override
        public Object receive(Object message) {
            if (message instanceof Moved moved) {
                MOVED_BYTES.put(moved.executor(), moved.bytes());
                return null;
            }
            Place place = (Place) message;
            if (place.address() == null) {
                return addresses.get(place.executor());
            }
            addresses.put(place.executor(), place.address());
            return new HashMap<>(addresses);
        }
    }

    /** Puts the UCX client in the place of Spark's own. */
    private static final class Executor implements ExecutorPlugin {
        private PluginContext plugin;
        private UcxTransport transport;

        @Override
        public void init(PluginContext context, Map<String, String> extra) {
            plugin = context;
            BlockManager blocks = SparkEnv.get().blockManager();
            transport = new UcxTransport(new LocalBlocks(blocks), this::addressOf);
            try {
                Map<?, ?> known = (Map<?, ?>) context.ask(new Place(context.executorID(), transport.address()));
                known.remove(context.executorID());
                known.forEach((executor, address) -> transport.connect((String) executor, (byte[]) address));
                replaceClient(blocks, new UcxBlockClient(transport, blocks.blockStoreClient()));
            } catch (Exception error) {
                transport.close();
                throw new IllegalStateException("shuffle blocks cannot be moved over UCX", error);
            }
        }

        private byte[] addressOf(String executor) throws IOException {
            try {
                Object address = plugin.ask(new Place(executor, null));
                if (address == null) {
                    throw new IOException("the driver knows no UCX address of executor " + executor);
                }
                return (byte[]) address;
            } catch (IOException error) {
                throw error;
            } catch (Exception error) {
                throw new IOException("the driver did not tell the UCX address of executor " + executor, error);
            }
        }

        /** Spark has no setting for it: its block transfer service is chosen by code. */
        private static void replaceClient(BlockManager blocks, BlockStoreClient client)
                throws ReflectiveOperationException {
            Field field = BlockManager.class.getDeclaredField("blockStoreClient");
            field.setAccessible(true);
            field.set(blocks, client);
        }

        @Override
        public void onTaskSucceeded() {
            try {
                plugin.send(new Moved(plugin.executorID(), transport.fetchedBytes()));
            } catch (IOException error) {
                System.err.println("the driver was not told what was moved over UCX: " + error);
            }
        }

        @Override
        public void shutdown() {
            if (transport != null) {
                transport.close();
            }
        }
    }
}
