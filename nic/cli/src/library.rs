//! Where liburxe.so is.
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

/// The environment variable that names the library.
pub(crate) const VARIABLE: &str = "URXE_LIBRARY";
const NAME: &str = "liburxe.so";

/// The library to preload: `named` if given, else the one beside this command (as cargo builds
/// them) or in `../lib/urxe` (as they are installed).
pub(crate) fn find(named: Option<&Path>) -> Result<PathBuf> {
    let found = match named {
        Some(path) => {
            ensure!(
                path.is_file(),
                "no library at {} (given with --library or {VARIABLE})",
                path.display()
            );
            path.to_owned()
        }
        None => beside_this_command()?,
    };
    let found = std::path::absolute(&found)
        .with_context(|| format!("cannot make {} an absolute path", found.display()))?;
    let text = found.to_string_lossy();
    // ld.so(8): LD_PRELOAD is a list separated by spaces or colons, without a way to quote them.
    ensure!(
        !text.contains([' ', ':']),
        "the dynamic linker cannot preload {text}: its path contains a space or a colon; \
         move it, or name a copy with {VARIABLE}"
    );
    Ok(found)
}

fn beside_this_command() -> Result<PathBuf> {
    let command = std::env::current_exe()
        .and_then(std::fs::canonicalize)
        .context("cannot find out where this command is installed")?;
    let folder = command.parent().unwrap_or(Path::new("/"));
    let prefix = folder.parent().unwrap_or(folder);
    let candidates = [folder.join(NAME), prefix.join("lib/urxe").join(NAME)];
    if let Some(found) = candidates.iter().find(|path| path.is_file()) {
        return Ok(found.clone());
    }
    bail!(
        "no {NAME} at {} or {}; the package of urxe has both, \
         and in its source `cargo build -p urxe-preload` builds it; or say where it is with --library or {VARIABLE}",
        candidates[0].display(),
        candidates[1].display()
    )
}
