// Memory that UCX sends from and receives into, kept for the next block: to register it again
// costs more than to fill it.
package org.rocelab.cloud.shuffle;

import java.nio.ByteBuffer;
import java.util.Deque;
import java.util.concurrent.ConcurrentLinkedDeque;

/** Direct buffers in sizes of powers of two. May be used by any thread. */
final class BufferPool {
    private static final int SMALLEST_BITS = 12;

    private final Deque<ByteBuffer>[] free;

    @SuppressWarnings({"unchecked", "rawtypes"})
    BufferPool() {
        free = new Deque[Integer.SIZE - 1];
        for (int bits = 0; bits < free.length; bits++) {
            free[bits] = new ConcurrentLinkedDeque<>();
        }
    }

    /** A buffer with {@code bytes} left in it. */
    ByteBuffer take(long bytes) {
        int bits = bitsFor(bytes);
        ByteBuffer kept = free[bits].pollFirst();
        ByteBuffer buffer = kept == null ? ByteBuffer.allocateDirect(1 << bits) : kept;
        buffer.clear().limit((int) bytes);
        return buffer;
    }

    /** Give back what was taken; no thread may use it any more. */
    void give(ByteBuffer buffer) {
        free[bitsFor(buffer.capacity())].addFirst(buffer);
    }

    private int bitsFor(long bytes) {
        int bits = Math.max(SMALLEST_BITS, Long.SIZE - Long.numberOfLeadingZeros(Math.max(bytes, 1) - 1));
        if (bits >= free.length) {
            throw new IllegalArgumentException("a block of " + bytes + " bytes is too large for a buffer");
        }
        return bits;
    }
}
