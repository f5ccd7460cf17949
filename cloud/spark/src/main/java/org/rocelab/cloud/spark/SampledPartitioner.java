// Which part of the output a record belongs to: ranges of keys, cut where a sample of the input
// says.
package org.rocelab.cloud.spark;

import java.util.Arrays;
import java.util.List;
import org.apache.spark.Partitioner;

/**
 * TeraSort's partitioner: a sorted list of N-1 sampled keys; all keys with {@code sample[i-1] <= key < sample[i]} go to
 * part i. The first two bytes of a key lead to the few cuts that are left to compare.
 */
public final class SampledPartitioner extends Partitioner {
    private static final long serialVersionUID = 1L;
    private static final int PREFIXES = 1 << 16;

    private final byte[][] cuts;
    /** By prefix, how many cuts begin with a smaller one. */
    private final int[] smaller = new int[PREFIXES + 1];

    private SampledPartitioner(byte[][] cuts) {
        this.cuts = cuts;
        for (byte[] cut : cuts) {
            smaller[prefix(cut) + 1]++;
        }
        for (int at = 0; at < PREFIXES; at++) {
            smaller[at + 1] += smaller[at];
        }
    }

    /** Cuts a sample into as many parts of the same size; there have to be at least as many keys as parts. */
    public static SampledPartitioner of(List<byte[]> sample, int parts) {
        if (sample.size() < parts) {
            throw new IllegalArgumentException("a sample of " + sample.size() + " keys cannot be cut into " + parts);
        }
        byte[][] sorted = sample.toArray(new byte[0][]);
        Arrays.sort(sorted, new KeyOrder());
        byte[][] cuts = new byte[parts - 1][];
        for (int at = 1; at < parts; at++) {
            cuts[at - 1] = Arrays.copyOf(sorted[(int) ((long) at * sorted.length / parts)], Records.KEY_BYTES);
        }
        return new SampledPartitioner(cuts);
    }

    private static int prefix(byte[] key) {
        return (key[0] & 0xff) << 8 | key[1] & 0xff;
    }

    @Override
    public int numPartitions() {
        return cuts.length + 1;
    }

    @Override
    public int getPartition(Object key) {
        byte[] of = (byte[]) key;
        int prefix = prefix(of);
        int part = smaller[prefix];
        int end = smaller[prefix + 1];
        while (part < end && Records.compareKeys(cuts[part], of) <= 0) {
            part++;
        }
        return part;
    }
}
