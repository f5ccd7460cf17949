// Hadoop's own TeraValidate on what Spark has sorted.
package org.rocelab.cloud.hdfs;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.examples.terasort.TeraValidate;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.util.ToolRunner;
import org.rocelab.cloud.core.Phase;
import org.rocelab.cloud.core.Report;

/** {@code HadoopValidate SORTED OUTPUT CHECKSUM}: the checksum that the sorted records have to have, in hexadecimal. */
public final class HadoopValidate {
    private HadoopValidate() {}

    public static void main(String[] args) throws Exception {
        Configuration configuration = new Configuration();
        Path output = new Path(args[1]);
        FileSystem files = FileSystem.get(output.toUri(), configuration);
        files.delete(output, true);
        Phase.begin("Hadoop's TeraValidate reads them");
        int status = ToolRunner.run(configuration, new TeraValidate(), new String[] {args[0], args[1]});
        List<String> said = linesIn(files, output);
        Report report = new Report().checkEqual("Hadoop's TeraValidate exit status", 0, status);
        // What is wrong it writes into its output, and ends well all the same.
        boolean accepted = said.equals(List.of("checksum\t" + args[2]));
        report.check("Hadoop's TeraValidate", accepted, String.join("; ", said)).print();
        System.exit(report.ok() ? 0 : 1);
    }

    private static List<String> linesIn(FileSystem files, Path folder) throws IOException {
        List<String> lines = new ArrayList<>();
        for (FileStatus file : files.listStatus(folder, path -> path.getName().startsWith("part-"))) {
            try (var in = files.open(file.getPath())) {
                new String(in.readAllBytes(), StandardCharsets.UTF_8).lines().forEach(lines::add);
            }
        }
        return lines;
    }
}
