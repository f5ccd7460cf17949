// A shuffle and nothing else: every part sends the same number of bytes to every other, which
// only counts them.
package org.rocelab.cloud.spark;

import java.util.Iterator;
import java.util.List;
import java.util.stream.IntStream;
import java.util.zip.CRC32;
import org.apache.spark.HashPartitioner;
import org.apache.spark.api.java.JavaPairRDD;
import org.rocelab.cloud.core.Phase;
import org.rocelab.cloud.core.Report;
import scala.Tuple2;

/** {@code ShuffleTest BYTES PARTS EXECUTORS SEED}. */
public final class ShuffleTest {
    private static final int CHUNK_BYTES = 32 * 1024;

    private ShuffleTest() {}

    public static void main(String[] args) throws Exception {
        int parts = Integer.parseInt(args[1]);
        int executors = Integer.parseInt(args[2]);
        long seed = Long.parseLong(args[3]);
        int chunks = Math.max(1, (int) (Long.parseLong(args[0]) / CHUNK_BYTES / parts / parts));
        long bytes = (long) chunks * CHUNK_BYTES * parts * parts;
        Report report = new Report();
        Phase.begin("Spark starts " + executors + " executors");
        try (Session session = new Session("shuffle", executors)) {
            long start = System.nanoTime();
            Phase.begin("Spark shuffles " + bytes + " bytes");
            JavaPairRDD<Integer, byte[]> made =
                    session.context()
                            .parallelize(IntStream.range(0, parts).boxed().toList(), parts)
                            .flatMapToPair(from -> chunksOf(seed, from, parts, chunks));
            List<long[]> found =
                    made.partitionBy(new HashPartitioner(parts)).mapPartitions(ShuffleTest::sumsOf).collect();
            report.value("shuffle_s", "s", "total", (System.nanoTime() - start) / 1e9);
            session.report("shuffle", report);

            report.checkEqual("bytes", bytes, found.stream().mapToLong(sums -> sums[0]).sum());
            report.checkEqual("checksum", expected(seed, parts, chunks), found.stream().mapToLong(sums -> sums[1]).sum());
            report.param("bytes", bytes).param("parts", parts).param("executors", executors);
        }
        report.print();
        System.exit(report.ok() ? 0 : 1);
    }

    private static Iterator<Tuple2<Integer, byte[]>> chunksOf(long seed, int from, int parts, int chunks) {
        return IntStream.range(0, parts * chunks)
                .mapToObj(at -> new Tuple2<>(at % parts, chunk(seed, from, at)))
                .iterator();
    }

    private static byte[] chunk(long seed, int from, int at) {
        byte[] data = new byte[CHUNK_BYTES];
        new java.util.SplittableRandom(Records.mix(seed) ^ ((long) from << 32 | at)).nextBytes(data);
        return data;
    }

    private static Iterator<long[]> sumsOf(Iterator<Tuple2<Integer, byte[]>> part) {
        long bytes = 0;
        long checksum = 0;
        while (part.hasNext()) {
            byte[] data = part.next()._2();
            bytes += data.length;
            checksum += crc(data);
        }
        return List.of(new long[] {bytes, checksum}).iterator();
    }

    private static long expected(long seed, int parts, int chunks) {
        return IntStream.range(0, parts)
                .boxed()
                .flatMapToLong(
                        from -> IntStream.range(0, parts * chunks).mapToLong(at -> crc(chunk(seed, from, at))))
                .sum();
    }

    private static long crc(byte[] data) {
        CRC32 crc = new CRC32();
        crc.update(data);
        return crc.getValue();
    }
}
