// Runs Hadoop's own TestDFSIO, write and then read, and looks at what HDFS has afterwards.
package org.rocelab.cloud.hdfs;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.BlockLocation;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.TestDFSIO;
import org.apache.hadoop.util.ToolRunner;
import org.rocelab.cloud.core.Phase;
import org.rocelab.cloud.core.Report;

/** {@code Dfsio FILES FILE_MIB REPLICATION}: one measurement. Configuration comes from the class path. What it wrote stays. */
public final class Dfsio {
    private static final long MIB = 1L << 20;

    /** Where TestDFSIO keeps its files in HDFS; it takes the folder from {@code test.build.data}. */
    private static final String FOLDER = "/benchmarks/TestDFSIO";

    private final Configuration configuration;
    private final int files;
    private final long fileMib;

    private Dfsio(Configuration configuration, int files, long fileMib) {
        this.configuration = configuration;
        this.files = files;
        this.fileMib = fileMib;
    }

    public static void main(String[] args) throws Exception {
        Configuration configuration = new Configuration();
        configuration.set("test.build.data", FOLDER);
        int files = Integer.parseInt(args[0]);
        long fileMib = Long.parseLong(args[1]);
        int replication = Integer.parseInt(args[2]);
        configuration.setInt("dfs.replication", replication);
        Dfsio run = new Dfsio(configuration, files, fileMib);
        Report report = new Report().param("files", files).param("file_mib", fileMib).param("replication", replication);

        FileSystem.get(configuration).delete(new org.apache.hadoop.fs.Path(FOLDER), true);
        Phase.begin("TestDFSIO writes " + files + " files of " + fileMib + " MiB");
        run.measure("write", report);
        run.checkStored(replication, report);
        Phase.begin("TestDFSIO reads them");
        run.measure("read", report);
        report.print();
        System.exit(report.ok() ? 0 : 1);
    }

    /** One pass of TestDFSIO, with what it writes into its file of results. */
    private void measure(String mode, Report report) throws Exception {
        Path results = Files.createTempFile("dfsio-", ".log");
        try {
            String[] arguments = {
                "-" + mode, "-nrFiles", Integer.toString(files), "-size", fileMib + "MB", "-resFile", results.toString()
            };
            int status = ToolRunner.run(configuration, new TestDFSIO(), arguments);
            report.checkEqual(mode + " exit status", 0, status);
            addResults(mode, Files.readString(results), report);
        } finally {
            Files.deleteIfExists(results);
        }
    }

    /** The lines of TestDFSIO's results, {@code Throughput mb/sec: 50.12} and such. Its mb are MiB. */
    static void addResults(String mode, String text, Report report) {
        Map<String, Double> found = new HashMap<>();
        for (String line : text.split("\n")) {
            int colon = line.indexOf(':');
            if (colon > 0) {
                try {
                    found.put(line.substring(0, colon).strip(), Double.valueOf(line.substring(colon + 1).strip()));
                } catch (NumberFormatException notNumeric) {
                    continue; // The date, and the title.
                }
            }
        }
        String metric = mode + "_mib_per_s";
        report.value(metric, "MiB/s", "mean", required(found, "Throughput mb/sec"));
        report.value(metric, "MiB/s", "mean_of_rates", required(found, "Average IO rate mb/sec"));
        report.value(metric, "MiB/s", "stdev_of_rates", required(found, "IO rate std deviation"));
        report.value(mode + "_s", "s", "total", required(found, "Test exec time sec"));
    }

    private static double required(Map<String, Double> found, String name) {
        Double value = found.get(name);
        if (value == null) {
            throw new IllegalStateException("TestDFSIO did not report '" + name + "', but " + found.keySet());
        }
        return value;
    }

    /** Every block of every file has to be on as many DataNodes as was asked for. */
    private void checkStored(int replication, Report report) throws IOException {
        FileSystem hdfs = FileSystem.get(configuration);
        long bytes = 0;
        long blocks = 0;
        long complete = 0;
        Set<String> holders = new HashSet<>();
        for (FileStatus file : hdfs.listStatus(new org.apache.hadoop.fs.Path(FOLDER, "io_data"))) {
            bytes += file.getLen();
            for (BlockLocation block : hdfs.getFileBlockLocations(file, 0, file.getLen())) {
                Set<String> hosts = new HashSet<>(Arrays.asList(block.getNames()));
                holders.addAll(hosts);
                blocks++;
                complete += hosts.size() == replication ? 1 : 0;
            }
        }
        report.checkEqual("bytes in HDFS", files * fileMib * MIB, bytes);
        report.checkEqual("blocks with " + replication + " replicas", blocks, complete);
        report.param("blocks", blocks).param("datanodes_with_blocks", holders.size());
    }
}
