// The records of TeraSort: 100 bytes, of which the first 10 are the key. What they hold follows
// from their number alone.
package org.rocelab.cloud.spark;

import java.util.Arrays;
import java.util.zip.CRC32;

/** Makes, compares and sums up records. */
public final class Records {
    public static final int RECORD_BYTES = 100;
    public static final int KEY_BYTES = 10;

    private Records() {}

    /** The record of a number, in a run with a seed. */
    public static byte[] record(long seed, long number) {
        byte[] record = new byte[RECORD_BYTES];
        long state = mix(seed) ^ number;
        put(record, 0, mix(state));
        long more = mix(~state);
        record[8] = (byte) more;
        record[9] = (byte) (more >>> 8);
        put(record, 12, number);
        // Random, so that no compression on the way makes less of it.
        for (int at = 20; at < RECORD_BYTES; at += 8) {
            put(record, at, mix(state + at));
        }
        return record;
    }

    private static void put(byte[] into, int at, long value) {
        for (int each = 0; each < 8; each++) {
            into[at + each] = (byte) (value >>> (56 - 8 * each));
        }
    }

    /** SplitMix64's output function (Steele, Lea, Flood 2014): every bit of the result depends on every bit put in. */
    static long mix(long value) {
        long mixed = value + 0x9e3779b97f4a7c15L;
        mixed = (mixed ^ (mixed >>> 30)) * 0xbf58476d1ce4e5b9L;
        mixed = (mixed ^ (mixed >>> 27)) * 0x94d049bb133111ebL;
        return mixed ^ (mixed >>> 31);
    }

    /** Orders records, or keys, by their first ten bytes, unsigned. */
    public static int compareKeys(byte[] one, byte[] other) {
        return Arrays.compareUnsigned(one, 0, KEY_BYTES, other, 0, KEY_BYTES);
    }

    /** What a record adds to the checksum, which is the sum over all and so the same in any order. */
    public static long checksum(byte[] record) {
        CRC32 crc = new CRC32();
        crc.update(record, 0, RECORD_BYTES);
        return crc.getValue();
    }
}
