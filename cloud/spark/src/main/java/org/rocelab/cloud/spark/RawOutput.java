// Writes records one behind the other, as Hadoop's TeraSort does, so that its TeraValidate can
// read them.
package org.rocelab.cloud.spark;

import java.io.IOException;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.io.BytesWritable;
import org.apache.hadoop.io.NullWritable;
import org.apache.hadoop.mapreduce.RecordWriter;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.hadoop.mapreduce.lib.output.FileOutputFormat;

/** An output format without lengths, names or compression. */
public final class RawOutput extends FileOutputFormat<BytesWritable, NullWritable> {
    @Override
    public RecordWriter<BytesWritable, NullWritable> getRecordWriter(TaskAttemptContext task) throws IOException {
        Path file = getDefaultWorkFile(task, "");
        FSDataOutputStream out = file.getFileSystem(task.getConfiguration()).create(file, false, 1 << 16);
        return new RecordWriter<>() {
            @Override
            public void write(BytesWritable record, NullWritable nothing) throws IOException {
                out.write(record.getBytes(), 0, record.getLength());
            }

            @Override
            public void close(TaskAttemptContext of) throws IOException {
                out.close();
            }
        };
    }
}
