// Listens to Spark: how long jobs and stages take, what tasks wait for, and what went from
// executor to executor.
package org.rocelab.cloud.spark;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.executor.ShuffleReadMetrics;
import org.apache.spark.executor.TaskMetrics;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerExecutorRemoved;
import org.apache.spark.scheduler.SparkListenerStageCompleted;
import org.apache.spark.scheduler.SparkListenerTaskEnd;
import org.apache.spark.scheduler.StageInfo;
import org.rocelab.cloud.core.Report;

/** Sums of what happened since it was asked last. All methods may be called from any thread. */
public final class Recorder extends SparkListener {
    private static final double MS_PER_S = 1e3;

    private record Stage(int id, double seconds, boolean reads, boolean writes) {}

    private final List<Stage> stages = new ArrayList<>();
    private final Map<String, Long> sums = new HashMap<>();
    private long failedTasks;
    private long lostExecutors;

    @Override
    public synchronized void onStageCompleted(SparkListenerStageCompleted event) {
        StageInfo stage = event.stageInfo();
        if (stage.submissionTime().isEmpty() || stage.completionTime().isEmpty()) {
            return;
        }
        long ms = (Long) stage.completionTime().get() - (Long) stage.submissionTime().get();
        TaskMetrics metrics = stage.taskMetrics();
        boolean reads = metrics.shuffleReadMetrics().recordsRead() > 0;
        boolean writes = metrics.shuffleWriteMetrics().recordsWritten() > 0;
        stages.add(new Stage(stage.stageId(), ms / MS_PER_S, reads, writes));
    }

    @Override
    public synchronized void onTaskEnd(SparkListenerTaskEnd event) {
        if (!event.taskInfo().successful()) {
            failedTasks++;
        }
        TaskMetrics metrics = event.taskMetrics();
        if (metrics == null) {
            return;
        }
        ShuffleReadMetrics read = metrics.shuffleReadMetrics();
        add("fetch wait ms", read.fetchWaitTime());
        add("remote bytes", read.remoteBytesRead());
        add("local bytes", read.localBytesRead());
        add("remote blocks", read.remoteBlocksFetched());
        add("run ms", metrics.executorRunTime());
        add("gc ms", metrics.jvmGCTime());
    }

    @Override
    public synchronized void onExecutorRemoved(SparkListenerExecutorRemoved event) {
        lostExecutors++;
    }

    private void add(String name, long value) {
        sums.merge(name, value, Long::sum);
    }

    /** Forget everything but lost executors. Callers that ask wait for the listener bus first. */
    public synchronized void clear() {
        stages.clear();
        sums.clear();
        failedTasks = 0;
    }

    /** Adds what a shuffle did: stages on either side of it, waiting, and bytes. Without remote bytes it was none. */
    public synchronized void report(String prefix, Report report) {
        double map = stages.stream().filter(Stage::writes).mapToDouble(Stage::seconds).sum();
        double reduce = stages.stream().filter(Stage::reads).mapToDouble(Stage::seconds).sum();
        report.value(prefix + "_map_stage_s", "s", "total", map);
        report.value(prefix + "_reduce_stage_s", "s", "total", reduce);
        report.value(prefix + "_fetch_wait_s", "s", "total", sum("fetch wait ms") / MS_PER_S);
        report.value(prefix + "_task_s", "s", "total", sum("run ms") / MS_PER_S);
        report.value(prefix + "_gc_s", "s", "total", sum("gc ms") / MS_PER_S);
        report.value(prefix + "_remote_bytes", "bytes", "total", sum("remote bytes"));
        report.value(prefix + "_local_bytes", "bytes", "total", sum("local bytes"));
        report.param(prefix + "_remote_blocks", sum("remote blocks"));
        report.check(prefix + " remote shuffle bytes", sum("remote bytes") > 0, Long.toString(sum("remote bytes")));
        report.checkEqual(prefix + " failed tasks", 0, failedTasks);
        report.checkEqual(prefix + " lost executors", 0, lostExecutors);
    }

    /** What was read from other executors. */
    public synchronized long remoteBytes() {
        return sum("remote bytes");
    }

    private long sum(String name) {
        return sums.getOrDefault(name, 0L);
    }
}
