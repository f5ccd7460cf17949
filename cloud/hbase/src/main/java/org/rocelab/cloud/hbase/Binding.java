// What YCSB's client needs to talk to HBase: its operations as those of HBase's own client.
package org.rocelab.cloud.hbase;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.Vector;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.util.Bytes;
import site.ycsb.ByteArrayByteIterator;
import site.ycsb.ByteIterator;
import site.ycsb.DB;
import site.ycsb.DBException;
import site.ycsb.Status;

/**
 * One for each thread of the client; all share a connection, as HBase wants it. A put goes to the server at once and
 * waits for the answer: nothing is kept in a buffer of the client.
 */
public final class Binding extends DB {
    /** The only column family. {@link Tables} makes tables with it. */
    static final byte[] FAMILY = Bytes.toBytes("f");

    private static Connection shared;
    private static int users;

    private Table table;
    private String tableName;

    private static synchronized Connection open() throws IOException {
        if (shared == null) {
            shared = ConnectionFactory.createConnection(HBaseConfiguration.create());
        }
        users++;
        return shared;
    }

    private static synchronized void leave() throws IOException {
        if (--users == 0) {
            shared.close();
            shared = null;
        }
    }

    @Override
    public void init() throws DBException {
        tableName = getProperties().getProperty("table", "usertable");
        try {
            table = open().getTable(TableName.valueOf(tableName));
        } catch (IOException error) {
            throw new DBException(error);
        }
    }

    @Override
    public void cleanup() throws DBException {
        try {
            table.close();
            leave();
        } catch (IOException error) {
            throw new DBException(error);
        }
    }

    @Override
    public Status read(String of, String key, Set<String> fields, Map<String, ByteIterator> into) {
        Get get = new Get(Bytes.toBytes(key));
        if (fields == null) {
            get.addFamily(FAMILY);
        } else {
            fields.forEach(field -> get.addColumn(FAMILY, Bytes.toBytes(field)));
        }
        try {
            Result result = table.get(get);
            if (result.isEmpty()) {
                return Status.NOT_FOUND;
            }
            into.putAll(fieldsOf(result));
            return Status.OK;
        } catch (IOException error) {
            return failed("get", error);
        }
    }

    @Override
    public Status scan(
            String of, String first, int count, Set<String> fields, Vector<HashMap<String, ByteIterator>> into) {
        Scan scan = new Scan().withStartRow(Bytes.toBytes(first)).setLimit(count).setCaching(count);
        if (fields == null) {
            scan.addFamily(FAMILY);
        } else {
            fields.forEach(field -> scan.addColumn(FAMILY, Bytes.toBytes(field)));
        }
        try (ResultScanner results = table.getScanner(scan)) {
            for (Result result : results) {
                into.add(fieldsOf(result));
            }
            // YCSB begins at a record that is there.
            return into.isEmpty() ? Status.NOT_FOUND : Status.OK;
        } catch (IOException error) {
            return failed("scan", error);
        }
    }

    @Override
    public Status update(String of, String key, Map<String, ByteIterator> values) {
        Put put = new Put(Bytes.toBytes(key));
        values.forEach((field, value) -> put.addColumn(FAMILY, Bytes.toBytes(field), value.toArray()));
        try {
            table.put(put);
            return Status.OK;
        } catch (IOException error) {
            return failed("put", error);
        }
    }

    @Override
    public Status insert(String of, String key, Map<String, ByteIterator> values) {
        return update(of, key, values);
    }

    @Override
    public Status delete(String of, String key) {
        try {
            table.delete(new Delete(Bytes.toBytes(key)));
            return Status.OK;
        } catch (IOException error) {
            return failed("delete", error);
        }
    }

    private static HashMap<String, ByteIterator> fieldsOf(Result result) {
        HashMap<String, ByteIterator> fields = new HashMap<>();
        for (Cell cell : result.rawCells()) {
            String name = new String(CellUtil.cloneQualifier(cell), StandardCharsets.UTF_8);
            fields.put(name, new ByteArrayByteIterator(CellUtil.cloneValue(cell)));
        }
        return fields;
    }

    /** YCSB counts it; the reason would be lost with it. */
    private static Status failed(String what, IOException error) {
        System.err.println(what + " failed: " + error);
        return Status.ERROR;
    }
}
