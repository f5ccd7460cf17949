// TeraGen, TeraSort and TeraValidate as one Spark application.
package org.rocelab.cloud.spark;

import java.io.IOException;
import java.io.Serializable;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.stream.IntStream;
import java.util.stream.LongStream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.io.BytesWritable;
import org.apache.hadoop.io.LongWritable;
import org.apache.hadoop.io.NullWritable;
import org.apache.hadoop.mapreduce.lib.input.FixedLengthInputFormat;
import org.apache.spark.api.java.JavaPairRDD;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.java.JavaSparkContext;
import org.rocelab.cloud.core.Phase;
import org.rocelab.cloud.core.Report;
import scala.Tuple2;

/** {@code TeraSort RECORDS PARTS EXECUTORS SEED FOLDER}: the output stays in FOLDER/sorted. */
public final class TeraSort {
    /** Of each part of the input. */
    private static final int SAMPLE_KEYS = 2000;

    private final JavaSparkContext context;
    private final long records;
    private final int parts;
    private final long seed;
    private final Path folder;

    /** What is known of a part, or of all of them: in the order of the parts if it is sorted. */
    private static final class Summary implements Serializable {
        private static final long serialVersionUID = 1L;

        final long records;
        final long checksum;
        final byte[] first;
        final byte[] last;
        final boolean sorted;

        // Not a record: Kryo cannot bring those back.
        Summary(long records, long checksum, byte[] first, byte[] last, boolean sorted) {
            this.records = records;
            this.checksum = checksum;
            this.first = first;
            this.last = last;
            this.sorted = sorted;
        }
    }

    private TeraSort(JavaSparkContext context, String[] args) {
        this.context = context;
        this.records = Long.parseLong(args[0]);
        this.parts = Integer.parseInt(args[1]);
        this.seed = Long.parseLong(args[3]);
        this.folder = new Path(args[4]);
    }

    public static void main(String[] args) throws Exception {
        Report report = new Report();
        int executors = Integer.parseInt(args[2]);
        Phase.begin("Spark starts " + executors + " executors");
        try (Session session = new Session("TeraSort", executors)) {
            TeraSort run = new TeraSort(session.context(), args);
            run.delete();
            long start = System.nanoTime();
            Phase.begin("TeraGen makes " + run.records + " records");
            Summary made = run.generate();
            report.value("teragen_s", "s", "total", secondsSince(start));

            session.beginRecording();
            start = System.nanoTime();
            Phase.begin("TeraSort sorts them");
            run.sort();
            report.value("terasort_s", "s", "total", secondsSince(start));
            session.report("terasort", report);

            start = System.nanoTime();
            Phase.begin("TeraValidate reads them");
            Summary sorted = run.validate();
            report.value("teravalidate_s", "s", "total", secondsSince(start));

            report.checkEqual("records made", run.records, made.records);
            report.checkEqual("records sorted", run.records, sorted.records);
            report.check("order", sorted.sorted, sorted.sorted ? "sorted" : "not sorted");
            String checksum = Long.toHexString(sorted.checksum);
            report.check("checksum", made.checksum == sorted.checksum, checksum);
            report.param("records", run.records).param("parts", run.parts).param("executors", executors);
            report.param("checksum", checksum);
        }
        report.print();
        System.exit(report.ok() ? 0 : 1);
    }

    private static double secondsSince(long startNs) {
        return (System.nanoTime() - startNs) / 1e9;
    }

    private void delete() throws IOException {
        FileSystem.get(folder.toUri(), context.hadoopConfiguration()).delete(folder, true);
    }

    private Path input() {
        return new Path(folder, "made");
    }

    private Path output() {
        return new Path(folder, "sorted");
    }

    /** TeraGen. */
    private Summary generate() {
        long all = records;
        int count = parts;
        long with = seed;
        JavaRDD<byte[]> made =
                context.parallelize(IntStream.range(0, count).boxed().toList(), count)
                        .flatMap(part -> numbers(all, count, part).mapToObj(at -> Records.record(with, at)).iterator());
        write(made, input());
        // Made again instead of read: what HDFS stored is checked by what TeraSort makes of it.
        return summarise(made);
    }

    private static LongStream numbers(long records, int parts, int part) {
        return LongStream.range(records * part / parts, records * (part + 1) / parts);
    }

    /** TeraSort: cut by a sample, move every record to its part, sort there. */
    private void sort() {
        JavaRDD<byte[]> input = read(input());
        List<byte[]> sample = input.mapPartitions(TeraSort::sampleOf).collect();
        JavaPairRDD<byte[], byte[]> pairs =
                input.mapToPair(
                        record ->
                                new Tuple2<>(
                                        Arrays.copyOf(record, Records.KEY_BYTES),
                                        Arrays.copyOfRange(record, Records.KEY_BYTES, Records.RECORD_BYTES)));
        JavaRDD<byte[]> sorted =
                pairs.repartitionAndSortWithinPartitions(SampledPartitioner.of(sample, parts), new KeyOrder())
                        .map(pair -> joined(pair._1(), pair._2()));
        write(sorted, output());
    }

    private static byte[] joined(byte[] key, byte[] rest) {
        byte[] record = Arrays.copyOf(key, Records.RECORD_BYTES);
        System.arraycopy(rest, 0, record, Records.KEY_BYTES, rest.length);
        return record;
    }

    /** The first keys of a part, which are as random as any. */
    private static Iterator<byte[]> sampleOf(Iterator<byte[]> part) {
        return java.util.stream.Stream.generate(() -> part.hasNext() ? part.next() : null)
                .takeWhile(java.util.Objects::nonNull)
                .limit(SAMPLE_KEYS)
                .map(record -> Arrays.copyOf(record, Records.KEY_BYTES))
                .iterator();
    }

    /** TeraValidate. */
    private Summary validate() {
        return summarise(read(output()));
    }

    private JavaRDD<byte[]> read(Path from) {
        Configuration configuration = new Configuration(context.hadoopConfiguration());
        FixedLengthInputFormat.setRecordLength(configuration, Records.RECORD_BYTES);
        // A file is a part, in the order of the names: only so is it known which comes first.
        configuration.setLong("mapreduce.input.fileinputformat.split.minsize", Long.MAX_VALUE);
        return context.newAPIHadoopFile(
                        from.toString(),
                        FixedLengthInputFormat.class,
                        LongWritable.class,
                        BytesWritable.class,
                        configuration)
                .map(pair -> pair._2().copyBytes());
    }

    private void write(JavaRDD<byte[]> from, Path to) {
        from.mapToPair(record -> new Tuple2<>(new BytesWritable(record), NullWritable.get()))
                .saveAsNewAPIHadoopFile(
                        to.toString(),
                        BytesWritable.class,
                        NullWritable.class,
                        RawOutput.class,
                        context.hadoopConfiguration());
    }

    private static Summary summarise(JavaRDD<byte[]> of) {
        return of.mapPartitions(part -> List.of(summaryOf(part)).iterator()).collect().stream()
                .reduce(new Summary(0, 0, null, null, true), TeraSort::behind);
    }

    private static Summary summaryOf(Iterator<byte[]> part) {
        long count = 0;
        long checksum = 0;
        boolean sorted = true;
        byte[] first = null;
        byte[] last = null;
        while (part.hasNext()) {
            byte[] record = part.next();
            first = first == null ? record : first;
            sorted &= last == null || Records.compareKeys(last, record) <= 0;
            last = record;
            count++;
            checksum += Records.checksum(record);
        }
        return new Summary(count, checksum, first, last, sorted);
    }

    /** Two parts of which the second comes behind the first. */
    private static Summary behind(Summary one, Summary other) {
        boolean meet = one.last == null || other.first == null;
        boolean sorted = one.sorted && other.sorted && (meet || Records.compareKeys(one.last, other.first) <= 0);
        return new Summary(
                one.records + other.records,
                one.checksum + other.checksum,
                one.first == null ? other.first : one.first,
                other.last == null ? one.last : other.last,
                sorted);
    }
}
