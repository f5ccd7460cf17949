// What a program of cloud/ measured, in the one form that rocelab reads: a line of JSON on
// standard output.
package org.rocelab.cloud.core;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Values, parameters and checks of one measurement. A measurement whose checks did not all pass is reported, and
 * rocelab does not count it.
 */
public final class Report {
    /** What the line begins with. */
    public static final String MARK = "rocelab-cloud ";

    /** Version of the format; it changes when a field changes its meaning. */
    public static final int VERSION = 1;

    private record Value(String metric, String unit, String statistic, double value) {}

    private record Check(String name, boolean ok, String found) {}

    private final List<Value> values = new ArrayList<>();
    private final Map<String, Object> params = new LinkedHashMap<>();
    private final List<Check> checks = new ArrayList<>();

    /**
     * Adds a measured value.
     *
     * @param metric what was measured, such as {@code write_mib_per_s}
     * @param unit its unit, such as {@code MiB/s}
     * @param statistic how the value was made: {@code mean}, {@code p99}, {@code total}
     */
    public Report value(String metric, String unit, String statistic, double value) {
        if (!Double.isFinite(value)) {
            throw new IllegalArgumentException(metric + " (" + statistic + ") is " + value + ", which is no number");
        }
        values.add(new Value(metric, unit, statistic, value));
        return this;
    }

    /** Notes something that was chosen or found: a string, a number or a boolean. */
    public Report param(String name, Object value) {
        params.put(name, value);
        return this;
    }

    /** Notes whether something is as it has to be, and what was found. */
    public Report check(String name, boolean ok, String found) {
        checks.add(new Check(name, ok, found));
        return this;
    }

    /** Notes whether a number is what it has to be. */
    public Report checkEqual(String name, long expected, long found) {
        return check(name, expected == found, found + " of " + expected);
    }

    /** Whether every check so far passed. */
    public boolean ok() {
        return checks.stream().allMatch(Check::ok);
    }

    /** The line, without a newline. */
    public String line() {
        Map<String, Object> all = new LinkedHashMap<>();
        all.put("version", VERSION);
        all.put("values", values);
        all.put("params", params);
        all.put("checks", checks);
        try {
            return MARK + new ObjectMapper().writeValueAsString(all);
        } catch (JsonProcessingException impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    /** Prints the line. Programs call this once, at their end. */
    public void print() {
        System.out.println(line());
        System.out.flush();
    }
}
