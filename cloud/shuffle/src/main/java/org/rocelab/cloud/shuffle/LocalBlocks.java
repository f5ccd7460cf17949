// The blocks that this executor has, by their names.
package org.rocelab.cloud.shuffle;

import org.apache.spark.network.buffer.ManagedBuffer;
import org.apache.spark.storage.BlockId;
import org.apache.spark.storage.BlockManager;

/** What a server of blocks needs of Spark. */
final class LocalBlocks {
    private final BlockManager blocks;

    LocalBlocks(BlockManager blocks) {
        this.blocks = blocks;
    }

    /** A block, still where Spark keeps it. Throws what Spark throws if it is not there. */
    ManagedBuffer get(String name) {
        return blocks.getLocalBlockData(BlockId.apply(name));
    }
}
