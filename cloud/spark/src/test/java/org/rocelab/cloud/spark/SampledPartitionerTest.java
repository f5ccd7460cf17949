package org.rocelab.cloud.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Arrays;
import java.util.List;
import java.util.stream.LongStream;
import org.junit.jupiter.api.Test;

class SampledPartitionerTest {
    private static final List<byte[]> RECORDS = LongStream.range(0, 20_000).mapToObj(at -> Records.record(7, at)).toList();

    @Test
    void everyKeyOfAPartComesBeforeEveryKeyOfTheNext() {
        SampledPartitioner cut = SampledPartitioner.of(RECORDS.subList(0, 1000), 12);
        byte[][] least = new byte[12][];
        byte[][] most = new byte[12][];
        for (byte[] record : RECORDS) {
            int part = cut.getPartition(record);
            if (least[part] == null || Records.compareKeys(record, least[part]) < 0) {
                least[part] = record;
            }
            if (most[part] == null || Records.compareKeys(record, most[part]) > 0) {
                most[part] = record;
            }
        }
        for (int part = 1; part < 12; part++) {
            assertTrue(Records.compareKeys(most[part - 1], least[part]) < 0);
        }
    }

    @Test
    void aSampledKeyBelongsToThePartThatItBegins() {
        SampledPartitioner cut = SampledPartitioner.of(List.of(key(1, 1), key(1, 2), key(1, 3)), 3);
        assertEquals(0, cut.getPartition(key(1, 1)));
        assertEquals(1, cut.getPartition(key(1, 2)));
        assertEquals(2, cut.getPartition(key(1, 3)));
        assertEquals(2, cut.getPartition(key(255, 0)));
    }

    @Test
    void tooSmallASampleIsRefused() {
        assertThrows(IllegalArgumentException.class, () -> SampledPartitioner.of(List.of(key(1, 1)), 2));
    }

    @Test
    void theSameNumberIsAlwaysTheSameRecord() {
        assertTrue(Arrays.equals(Records.record(1, 5), Records.record(1, 5)));
        assertTrue(Records.compareKeys(Records.record(1, 5), Records.record(2, 5)) != 0);
    }

    private static byte[] key(int first, int second) {
        byte[] key = new byte[Records.RECORD_BYTES];
        key[0] = (byte) first;
        key[5] = (byte) second;
        return key;
    }
}
