//! A byte stream of a kernel, as far as it has come.

/// One direction of a connection.
#[derive(Clone, Debug)]
pub(crate) struct ByteStream {
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) writer: u32,
    pub(crate) reader: u32,
    /// Of a message: the reader knows where one ends.
    pub(crate) message_bytes: u64,
    /// The writer's data: copied to the kernel, sent, acknowledged.
    pub(crate) written: u64,
    pub(crate) sent: u64,
    pub(crate) acked: u64,
    /// Of the message being written: not copied yet, and being copied.
    pub(crate) left: u64,
    pub(crate) piece: u64,
    pub(crate) is_blocked: bool,
    /// The reader's: arrived, and read as whole messages.
    pub(crate) arrived: u64,
    pub(crate) messages_read: u64,
    pub(crate) unacked_segments: u32,
    pub(crate) owes_ack: bool,
    /// Whether each direction waits for its turn at the adapter.
    pub(crate) is_ready: [bool; 2],
}

impl ByteStream {
    pub(crate) const fn new(
        from: u32,
        to: u32,
        writer: u32,
        reader: u32,
        message_bytes: u64,
    ) -> Self {
        Self {
            from,
            to,
            writer,
            reader,
            message_bytes,
            written: 0,
            sent: 0,
            acked: 0,
            left: 0,
            piece: 0,
            is_blocked: false,
            arrived: 0,
            messages_read: 0,
            unacked_segments: 0,
            owes_ack: false,
            is_ready: [false; 2],
        }
    }
}
