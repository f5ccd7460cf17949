// The order of TeraSort, in the form in which Spark takes it along to executors.
package org.rocelab.cloud.spark;

import java.io.Serializable;
import java.util.Comparator;

/** Orders records by key. */
public final class KeyOrder implements Comparator<byte[]>, Serializable {
    private static final long serialVersionUID = 1L;

    @Override
    public int compare(byte[] one, byte[] other) {
        return Records.compareKeys(one, other);
    }
}
