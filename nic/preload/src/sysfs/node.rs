//! What there is at a path.
use crate::errno::Errno;

/// What there is at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    /// A file that can be read, and what is in it.
    File(Vec<u8>),
    /// A file that is there and has nothing to say: reading it is this error.
    Mute(Errno),
    /// A folder of ours alone.
    Folder,
    /// A folder that real devices have entries in, too.
    Shared,
    /// A symbolic link, and where it leads.
    Link(String),
    /// A character device, by its minor number.
    Character(u32),
}

impl Node {
    /// A file's text, with the newline that sysfs ends it with.
    pub(super) fn line(mut text: String) -> Self {
        text.push('\n');
        Self::File(text.into_bytes())
    }

    /// A file of a fixed text.
    pub(super) fn text(text: &str) -> Self {
        Self::line(text.to_owned())
    }

    pub(super) fn link(target: &str) -> Self {
        Self::Link(target.to_owned())
    }
}
