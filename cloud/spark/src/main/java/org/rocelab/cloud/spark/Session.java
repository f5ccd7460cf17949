// A Spark application of ours: its context, with all executors there before anything is measured.
package org.rocelab.cloud.spark;

import java.util.concurrent.TimeoutException;
import org.apache.spark.SparkConf;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.scheduler.SparkListenerInterface;
import org.rocelab.cloud.core.Report;
import org.rocelab.cloud.shuffle.UcxShufflePlugin;

/** Closes the application when it is closed. The configuration comes from system properties {@code spark.*}. */
public final class Session implements AutoCloseable {
    private static final long EXECUTORS_LIMIT_MS = 45_000;
    private static final long LOOK_EVERY_MS = 100;
    private static final long MOVED_LIMIT_MS = 3_000;

    private final JavaSparkContext context;
    private final Recorder recorder = new Recorder();
    private long movedBefore;

    public Session(String name, int executors) throws InterruptedException {
        context = new JavaSparkContext(new SparkConf().setAppName(name));
        waitForExecutors(executors);
        context.sc().addSparkListener((SparkListenerInterface) recorder);
    }

    private void waitForExecutors(int executors) throws InterruptedException {
        long deadline = System.currentTimeMillis() + EXECUTORS_LIMIT_MS;
        // The driver counts as one.
        while (context.sc().getExecutorMemoryStatus().size() - 1 < executors) {
            if (System.currentTimeMillis() > deadline) {
                int there = context.sc().getExecutorMemoryStatus().size() - 1;
                throw new IllegalStateException(
                        there + " of " + executors + " executors came within " + EXECUTORS_LIMIT_MS / 1000 + " s");
            }
            Thread.sleep(LOOK_EVERY_MS);
        }
    }

    public JavaSparkContext context() {
        return context;
    }

    /** Forget what was recorded up to now. */
    public void beginRecording() throws TimeoutException {
        context.sc().listenerBus().waitUntilEmpty();
        recorder.clear();
        movedBefore = UcxShufflePlugin.movedBytes();
    }

    /** Add what was recorded since, and whether the blocks went over what they were to go over. */
    public void report(String prefix, Report report) throws TimeoutException, InterruptedException {
        context.sc().listenerBus().waitUntilEmpty();
        recorder.report(prefix, report);
        boolean overUcx = context.getConf().get("spark.plugins", "").contains(UcxShufflePlugin.class.getName());
        long expected = overUcx ? recorder.remoteBytes() : 0;
        // Executors tell it a moment after their tasks have ended.
        long deadline = System.currentTimeMillis() + MOVED_LIMIT_MS;
        while (UcxShufflePlugin.movedBytes() - movedBefore < expected && System.currentTimeMillis() < deadline) {
            Thread.sleep(LOOK_EVERY_MS);
        }
        report.checkEqual(prefix + " bytes moved over UCX", expected, UcxShufflePlugin.movedBytes() - movedBefore);
    }

    @Override
    public void close() {
        context.close();
    }
}
