//! What the engine hands over to the program: completions, events, and word of which thread makes
//! progress.

pub(crate) mod channel_events;
pub(crate) mod completions;
pub(crate) mod events;
pub(crate) mod moderated;
pub(crate) mod moderation;
pub(crate) mod progress;
