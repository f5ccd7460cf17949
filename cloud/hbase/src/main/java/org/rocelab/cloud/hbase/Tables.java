// Makes the table that YCSB works on, spread over the region servers from the beginning.
package org.rocelab.cloud.hbase;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.HRegionLocation;
import org.apache.hadoop.hbase.ServerName;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.RegionLocator;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.util.Bytes;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.rocelab.cloud.core.Report;

/** {@code Tables NAME REGIONS SERVERS}: an empty table in that many regions, on that many region servers. */
public final class Tables {
    private Tables() {}

    public static void main(String[] args) throws Exception {
        TableName name = TableName.valueOf(args[0]);
        int regions = Integer.parseInt(args[1]);
        int servers = Integer.parseInt(args[2]);
        Configuration configuration = HBaseConfiguration.create();
        Report report = new Report();
        try (Connection connection = ConnectionFactory.createConnection(configuration);
                Admin admin = connection.getAdmin()) {
            if (admin.tableExists(name)) {
                admin.disableTable(name);
                admin.deleteTable(name);
            }
            admin.createTable(
                    TableDescriptorBuilder.newBuilder(name)
                            .setColumnFamily(ColumnFamilyDescriptorBuilder.newBuilder(Binding.FAMILY).build())
                            .build(),
                    splits(regions));
            try (RegionLocator locator = connection.getRegionLocator(name)) {
                List<HRegionLocation> where = locator.getAllRegionLocations();
                Map<ServerName, Long> byServer =
                        where.stream().collect(Collectors.groupingBy(HRegionLocation::getServerName, Collectors.counting()));
                report.checkEqual("regions", regions, where.size());
                report.checkEqual("region servers with regions", servers, byServer.size());
            }
        }
        report.print();
        System.exit(report.ok() ? 0 : 1);
    }

    /** Where regions begin. YCSB's keys are "user" and a hash in decimal, so nearly all have a digit of 1 to 9 there. */
    static byte[][] splits(int regions) {
        byte[][] found = new byte[regions - 1][];
        for (int at = 1; at < regions; at++) {
            found[at - 1] = Bytes.toBytes("user" + (1000 + at * (9999 - 1000) / regions));
        }
        return found;
    }
}
