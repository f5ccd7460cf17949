//! What we say to a person, on stderr: errors, unless `URXE_LOG` asks for more or for less (`off`,
//! `error`, `warn`, `info`, `debug`, `trace`, or a filter as `env_logger` reads it). Errors are
//! what the person has to know of: an environment variable that cannot be understood, and, once per
//! kind, what a program asked for and does not get.
use std::collections::BTreeSet;
use std::io::Write;
use std::sync::Once;

use urxe_device::{AcrossFork, Uncancelled};

/// Starts logging; called when a program first touches verbs.
pub(crate) fn start() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let env = env_logger::Env::new()
            .filter_or("URXE_LOG", "error")
            .write_style("URXE_LOG_STYLE");
        let logger = env_logger::Builder::from_env(env)
            .format(|out, record| {
                // Programs come in several processes, and their lines in any order.
                let (process, level) = (std::process::id(), record.level().as_str());
                let level = level.to_ascii_lowercase();
                writeln!(out, "urxe[{process}]: {level}: {}", record.args())
            })
            .build();
        let level = logger.filter();
        // A logger of the program itself (were it Rust) stays; ours is then not needed.
        if log::set_boxed_logger(Box::new(Quiet(logger))).is_ok() {
            log::set_max_level(level);
        }
    });
}

/// A logger in which threads of the program are not cancelled: a thread that logs may hold locks.
struct Quiet(env_logger::Logger);

impl log::Log for Quiet {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        self.0.enabled(metadata)
    }

    fn log(&self, record: &log::Record<'_>) {
        let _uncancelled = Uncancelled::new();
        self.0.log(record);
    }

    fn flush(&self) {}
}

/// What was said.
pub(crate) static SAID: AcrossFork<BTreeSet<&'static str>> = AcrossFork::new(BTreeSet::new());

/// Says once per kind that a program asked for what this device does not do.
pub(crate) fn unsupported(what: &'static str) {
    start();
    if SAID.lock().insert(what) {
        log::error!(
            "the program asked for {what}, which urxe devices do not support; it gets EOPNOTSUPP"
        );
    }
}
