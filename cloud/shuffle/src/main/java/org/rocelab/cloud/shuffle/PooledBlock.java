// A block that was received, in memory that goes back to the pool when Spark has read it.
package org.rocelab.cloud.shuffle;

import io.netty.buffer.ByteBufInputStream;
import io.netty.buffer.Unpooled;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.spark.network.buffer.ManagedBuffer;

/** Counts its users, as Spark's own buffers do. */
final class PooledBlock extends ManagedBuffer {
    private final BufferPool pool;
    private final ByteBuffer buffer;
    private final AtomicInteger users = new AtomicInteger(1);

    PooledBlock(BufferPool pool, ByteBuffer buffer) {
        this.pool = pool;
        this.buffer = buffer;
    }

    @Override
    public long size() {
        return buffer.limit();
    }

    @Override
    public ByteBuffer nioByteBuffer() {
        return buffer.duplicate();
    }

    @Override
    public InputStream createInputStream() {
        return new ByteBufInputStream(Unpooled.wrappedBuffer(buffer.duplicate()));
    }

    @Override
    public ManagedBuffer retain() {
        users.incrementAndGet();
        return this;
    }

    @Override
    public ManagedBuffer release() {
        if (users.decrementAndGet() == 0) {
            pool.give(buffer);
        }
        return this;
    }

    @Override
    public Object convertToNetty() {
        return Unpooled.wrappedBuffer(buffer.duplicate());
    }

    @Override
    public Object convertToNettyForSsl() {
        return convertToNetty();
    }
}
