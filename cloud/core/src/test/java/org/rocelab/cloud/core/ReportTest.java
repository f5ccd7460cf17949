package org.rocelab.cloud.core;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import org.junit.jupiter.api.Test;

class ReportTest {
    @Test
    void oneLineOfJsonBehindTheMark() throws Exception {
        String line = new Report().value("write_mib_per_s", "MiB/s", "mean", 50.5).param("files", 2).line();
        assertTrue(line.startsWith(Report.MARK));
        assertFalse(line.contains("\n"));
        JsonNode read = new ObjectMapper().readTree(line.substring(Report.MARK.length()));
        assertEquals(50.5, read.at("/values/0/value").asDouble());
        assertEquals("MiB/s", read.at("/values/0/unit").asText());
        assertEquals(2, read.at("/params/files").asInt());
    }

    @Test
    void oneFailedCheckIsEnough() {
        Report report = new Report().checkEqual("replicas", 3, 3);
        assertTrue(report.ok());
        report.checkEqual("bytes", 100, 99);
        assertFalse(report.ok());
        assertTrue(report.line().contains("99 of 100"));
    }

    @Test
    void whatIsNoNumberIsNoValue() {
        assertThrows(IllegalArgumentException.class, () -> new Report().value("m", "s", "mean", Double.NaN));
    }
}
