//! What the kernel under us can do.

/// What a socket can do now. Found at [`bind`](crate::Socket::bind), and `gso` may turn false
/// later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// The kernel cuts one large send into datagrams. Without it `send` still takes `segment_size`,
    /// with a system call for each.
    pub gso: bool,
    /// Most segments of one [`Transmit`](crate::Transmit), with GSO or without.
    pub max_gso_segments: usize,
    /// The kernel may hand over several datagrams of one sender at once.
    pub gro: bool,
    /// The type of service of received datagrams is known ([`RecvMeta::tos`](crate::RecvMeta)).
    pub tos: bool,
    /// Short datagrams go as frames to neighbours ([`Options::frames`](crate::Options)).
    pub frames: bool,
}
