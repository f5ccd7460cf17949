//! What we say to a person: nothing on stderr unless `URXE_LOG` asks (`error`, `warn`, `info`,
//! `debug`, `trace`, or a filter as `env_logger` reads it).
use std::collections::BTreeSet;
use std::sync::Once;

use parking_lot::Mutex;

/// Starts logging; called when a program first touches verbs.
pub(crate) fn start() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let env = env_logger::Env::new()
            .filter_or("URXE_LOG", "off")
            .write_style("URXE_LOG_STYLE");
        // A logger of the program itself (were it Rust) stays; ours is then not needed.
        let _ = env_logger::Builder::from_env(env)
            .format_target(false)
            .try_init();
    });
}

/// Says once per kind that a program asked for what this device does not do.
pub(crate) fn unsupported(what: &'static str) {
    static SAID: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    start();
    if SAID.lock().insert(what) {
        log::debug!(
            "the program asked for {what}, which urxe devices do not support; it gets EOPNOTSUPP"
        );
    }
}
