// Asks other executors for blocks and answers them, by UCX active messages. One thread owns UCX
// and everything in it.
package org.rocelab.cloud.shuffle;

import java.io.Closeable;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.spark.network.buffer.ManagedBuffer;
import org.apache.spark.network.shuffle.BlockFetchingListener;
import org.openucx.jucx.UcxCallback;
import org.openucx.jucx.UcxUtils;
import org.openucx.jucx.ucp.UcpAmData;
import org.openucx.jucx.ucp.UcpConstants;
import org.openucx.jucx.ucp.UcpContext;
import org.openucx.jucx.ucp.UcpEndpoint;
import org.openucx.jucx.ucp.UcpEndpointParams;
import org.openucx.jucx.ucp.UcpParams;
import org.openucx.jucx.ucp.UcpRequest;
import org.openucx.jucx.ucp.UcpWorker;
import org.openucx.jucx.ucp.UcpWorkerParams;
import org.openucx.jucx.ucs.UcsConstants;

/**
 * A request carries the names of blocks, and each block comes back as a message of its own. Its
 * header has the number of the request, the place of the block in it, and whether it is the block
 * or the reason why there is none.
 */
final class UcxTransport implements Closeable {
    /** Finds the UCX address of an executor. */
    interface Directory {
        byte[] addressOf(String executor) throws IOException;
    }

    private static final int ASK = 0;
    private static final int ANSWER = 1;
    private static final int ASK_HEADER_BYTES = Long.BYTES;
    private static final int ANSWER_HEADER_BYTES = Long.BYTES + 2 * Integer.BYTES;
    private static final int GOOD = 0;
    private static final int BAD = 1;
    private static final int READERS = 2;
    private static final long CLOSE_LIMIT_MS = 5_000;

    /** Blocks that were asked for and did not come yet. */
    private static final class Pending {
        final String executor;
        final String[] names;
        final BlockFetchingListener listener;
        int missing;

        Pending(String executor, String[] names, BlockFetchingListener listener) {
            this.executor = executor;
            this.names = names.clone();
            this.listener = listener;
            this.missing = names.length;
        }
    }

    private final LocalBlocks blocks;
    private final Directory directory;
    private final BufferPool pool = new BufferPool();
    private final Queue<Runnable> tasks = new ConcurrentLinkedQueue<>();
    private final ExecutorService readers = Executors.newFixedThreadPool(READERS, UcxTransport::daemon);
    private final AtomicLong fetchedBytes = new AtomicLong();
    private final Map<String, byte[]> addresses = new ConcurrentHashMap<>();
    private final UcpContext context;
    private final UcpWorker worker;
    private final Thread thread;
    private volatile boolean closing;

    // Of the thread alone.
    private final Map<String, UcpEndpoint> endpoints = new HashMap<>();
    private final Map<Long, Pending> pending = new HashMap<>();
    private long lastRequest;

    UcxTransport(LocalBlocks blocks, Directory directory) {
        this.blocks = blocks;
        this.directory = directory;
        context = new UcpContext(new UcpParams().requestAmFeature().requestWakeupFeature());
        worker = new UcpWorker(context, new UcpWorkerParams());
        worker.setAmRecvHandler(ASK, this::onAsk, UcpConstants.UCP_AM_FLAG_WHOLE_MSG);
        worker.setAmRecvHandler(ANSWER, this::onAnswer, UcpConstants.UCP_AM_FLAG_WHOLE_MSG);
        thread = daemon(this::progress);
    }

    private static Thread daemon(Runnable work) {
        Thread made = new Thread(work, "ucx-shuffle");
        made.setDaemon(true);
        return made;
    }

    /** What others need to talk to this one. Begins to serve them. */
    byte[] address() {
        ByteBuffer address = worker.getAddress();
        byte[] copy = new byte[address.remaining()];
        address.get(copy);
        thread.start();
        return copy;
    }

    /** How many bytes of blocks have come so far. */
    long fetchedBytes() {
        return fetchedBytes.get();
    }

    /** Begin to set up the connection to an executor, which else happens when it is first asked for something. */
    void connect(String executor, byte[] address) {
        addresses.put(executor, address);
        submit(
                () -> {
                    try {
                        endpointTo(executor);
                    } catch (RuntimeException error) {
                        // It may be gone already. A thread that asks it for a block learns of it.
                        System.err.println("no UCX connection to executor " + executor + ": " + error);
                    }
                });
    }

    /**
     * Fetch blocks of an executor. The listener is told of each, from another thread; or from this
     * one, if the directory does not know where the executor is. The caller waits for the
     * directory, so that the thread need not: it has others to serve meanwhile.
     */
    void fetch(String executor, String[] names, BlockFetchingListener listener) {
        Pending wanted = new Pending(executor, names, listener);
        try {
            if (!addresses.containsKey(executor)) {
                addresses.put(executor, directory.addressOf(executor));
            }
        } catch (IOException error) {
            fail(wanted, error.toString());
            return;
        }
        submit(() -> ask(wanted));
    }

    @Override
    public void close() {
        closing = true;
        readers.shutdownNow();
        worker.signal();
        try {
            thread.join(CLOSE_LIMIT_MS);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    private void submit(Runnable task) {
        tasks.add(task);
        worker.signal();
    }

    /** The thread: work that others have for it, and UCX's own; asleep when there is neither. */
    private void progress() {
        try {
            while (!closing) {
                Runnable task = tasks.poll();
                if (task != null) {
                    task.run();
                }
                if (worker.progress() == 0 && task == null) {
                    worker.waitForEvents();
                }
            }
        } catch (Exception | Error error) {
            error.printStackTrace();
            failAll(null, "UCX failed: " + error);
        } finally {
            endpoints.values().forEach(UcpEndpoint::close);
            worker.close();
            context.close();
        }
    }

    // The side that asks

    private void ask(Pending wanted) {
        try {
            UcpEndpoint endpoint = endpointTo(wanted.executor);
            long request = ++lastRequest;
            pending.put(request, wanted);
            byte[] names = String.join("\n", wanted.names).getBytes(StandardCharsets.UTF_8);
            ByteBuffer message = pool.take(ASK_HEADER_BYTES + names.length);
            message.putLong(request).put(names).flip();
            send(endpoint, ASK, message, ASK_HEADER_BYTES, UcpConstants.UCP_AM_SEND_FLAG_REPLY);
        } catch (RuntimeException error) {
            fail(wanted, error.toString());
        }
    }

    private UcpEndpoint endpointTo(String executor) {
        UcpEndpoint known = endpoints.get(executor);
        if (known != null) {
            return known;
        }
        byte[] address = addresses.get(executor);
        ByteBuffer direct = ByteBuffer.allocateDirect(address.length);
        direct.put(address).flip();
        UcpEndpointParams wanted =
                new UcpEndpointParams()
                        .setUcpAddress(direct)
                        .setPeerErrorHandlingMode()
                        .setErrorHandler((endpoint, status, reason) -> lost(executor, reason));
        UcpEndpoint made = worker.newEndpoint(wanted);
        endpoints.put(executor, made);
        return made;
    }

    /** UCX has given up on an executor: nothing more comes from there. */
    private void lost(String executor, String reason) {
        submit(
                () -> {
                    UcpEndpoint endpoint = endpoints.remove(executor);
                    if (endpoint != null) {
                        endpoint.closeNonBlockingForce();
                    }
                    failAll(executor, "the connection to executor " + executor + " broke: " + reason);
                });
    }

    private int onAnswer(long headerAddress, long headerBytes, UcpAmData data, UcpEndpoint from) {
        ByteBuffer header = UcxUtils.getByteBufferView(headerAddress, headerBytes);
        long request = header.getLong();
        int at = header.getInt();
        int status = header.getInt();
        ByteBuffer into = pool.take(data.getLength());
        if (data.isDataValid()) {
            into.put(UcxUtils.getByteBufferView(data.getDataAddress(), data.getLength())).flip();
            arrived(request, at, status, into);
            return UcsConstants.STATUS.UCS_OK;
        }
        data.receive(
                UcxUtils.getAddress(into),
                new UcxCallback() {
                    @Override
                    public void onSuccess(UcpRequest done) {
                        arrived(request, at, status, into);
                    }

                    @Override
                    public void onError(int code, String reason) {
                        byte[] words = ("UCX could not receive it: " + reason).getBytes(StandardCharsets.UTF_8);
                        arrived(request, at, BAD, ByteBuffer.wrap(words));
                    }
                });
        return UcsConstants.STATUS.UCS_OK;
    }

    private void arrived(long request, int at, int status, ByteBuffer data) {
        Pending wanted = pending.get(request);
        if (wanted == null || wanted.names[at] == null) {
            return; // It was given up meanwhile.
        }
        String name = wanted.names[at];
        wanted.names[at] = null;
        if (--wanted.missing == 0) {
            pending.remove(request);
        }
        if (status != GOOD) {
            String reason = StandardCharsets.UTF_8.decode(data).toString();
            wanted.listener.onBlockFetchFailure(name, new IOException(reason));
            return;
        }
        fetchedBytes.addAndGet(data.limit());
        ManagedBuffer block = new PooledBlock(pool, data);
        wanted.listener.onBlockFetchSuccess(name, block);
        // A listener that wants to keep it has retained it.
        block.release();
    }

    /** Give up on what an executor was asked for; null: on everything. */
    private void failAll(String executor, String reason) {
        for (Iterator<Pending> each = pending.values().iterator(); each.hasNext(); ) {
            Pending wanted = each.next();
            if (executor == null || wanted.executor.equals(executor)) {
                each.remove();
                fail(wanted, reason);
            }
        }
    }

    private static void fail(Pending wanted, String reason) {
        for (String name : wanted.names) {
            if (name != null) {
                wanted.listener.onBlockFetchFailure(name, new IOException(reason));
            }
        }
    }

    // The side that answers

    private int onAsk(long headerAddress, long headerBytes, UcpAmData data, UcpEndpoint reply) {
        long request = UcxUtils.getByteBufferView(headerAddress, headerBytes).getLong();
        if (!data.isDataValid()) {
            ByteBuffer into = pool.take(data.getLength());
            data.receive(
                    UcxUtils.getAddress(into),
                    new UcxCallback() {
                        @Override
                        public void onSuccess(UcpRequest done) {
                            serve(reply, request, StandardCharsets.UTF_8.decode(into).toString());
                            pool.give(into);
                        }
                    });
            return UcsConstants.STATUS.UCS_OK;
        }
        ByteBuffer names = UcxUtils.getByteBufferView(data.getDataAddress(), data.getLength());
        serve(reply, request, StandardCharsets.UTF_8.decode(names).toString());
        return UcsConstants.STATUS.UCS_OK;
    }

    /** Blocks are read from files, which others do: the thread has to go on. */
    private void serve(UcpEndpoint reply, long request, String names) {
        String[] each = names.split("\n");
        readers.execute(
                () -> {
                    for (int at = 0; at < each.length; at++) {
                        ByteBuffer message = answer(request, at, each[at]);
                        submit(() -> send(reply, ANSWER, message, ANSWER_HEADER_BYTES, 0));
                    }
                });
    }

    private ByteBuffer answer(long request, int at, String name) {
        try {
            ManagedBuffer block = blocks.get(name);
            block.retain();
            try {
                ByteBuffer data = block.nioByteBuffer();
                return answer(request, at, GOOD, data);
            } finally {
                block.release();
            }
        } catch (IOException | RuntimeException error) {
            return answer(request, at, BAD, ByteBuffer.wrap(error.toString().getBytes(StandardCharsets.UTF_8)));
        }
    }

    private ByteBuffer answer(long request, int at, int status, ByteBuffer data) {
        ByteBuffer message = pool.take(ANSWER_HEADER_BYTES + data.remaining());
        return message.putLong(request).putInt(at).putInt(status).put(data).flip();
    }

    /** Send a message that begins with its header. Its memory goes back to the pool once UCX is done with it. */
    private void send(UcpEndpoint to, int kind, ByteBuffer message, int headerBytes, long flags) {
        long address = UcxUtils.getAddress(message);
        long dataBytes = message.limit() - (long) headerBytes;
        to.sendAmNonBlocking(
                kind,
                address,
                headerBytes,
                address + headerBytes,
                dataBytes,
                flags,
                new UcxCallback() {
                    @Override
                    public void onSuccess(UcpRequest done) {
                        pool.give(message);
                    }

                    @Override
                    public void onError(int code, String reason) {
                        // The executor that waits for it learns of it from its own endpoint.
                        System.err.println("UCX could not send: " + reason);
                    }
                });
    }
}
