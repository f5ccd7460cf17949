//! Finding the program that is to run.
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Why a program was not run, with the exit status that shells use for it.
#[derive(Debug)]
pub(crate) enum NotRun {
    /// There is no such program.
    NotFound(String),
    /// It is there and cannot be executed.
    NotExecutable(String),
}

impl NotRun {
    pub(crate) fn exit_status(&self) -> u8 {
        match self {
            Self::NotFound(_) => 127,
            Self::NotExecutable(_) => 126,
        }
    }
}

impl fmt::Display for NotRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound(text) | Self::NotExecutable(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for NotRun {}

/// Finds a program as a shell does: a name with a slash is a path, any other is looked for in PATH.
pub(crate) fn find(name: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, NotRun> {
    let shown = name.to_string_lossy();
    if name.as_bytes().contains(&b'/') {
        let program = PathBuf::from(name);
        return match program.metadata() {
            Err(error) => Err(NotRun::NotFound(format!("no program at {shown}: {error}"))),
            Ok(_) if is_program(&program) => Ok(program),
            Ok(_) => Err(NotRun::NotExecutable(format!(
                "{shown} is not an executable file"
            ))),
        };
    }
    let folders = std::env::split_paths(path.unwrap_or(OsStr::new("/usr/bin:/bin")));
    folders
        .map(|folder| folder.join(name))
        .find(|program| is_program(program))
        .ok_or_else(|| {
            NotRun::NotFound(format!(
                "no program '{shown}' in PATH; install it, or give its path \
             (perftest has ib_send_lat and the like, ibverbs-utils has ibv_devinfo)"
            ))
        })
}

fn is_program(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_as_a_shell_finds_them() {
        let path = Some(OsStr::new("/nonexistent:/usr/bin:/bin"));
        assert!(find(OsStr::new("sh"), path).unwrap().ends_with("sh"));
        assert_eq!(
            find(OsStr::new("/bin/sh"), None).unwrap(),
            Path::new("/bin/sh")
        );
        let missing = find(OsStr::new("no-such-program"), path).unwrap_err();
        assert_eq!(missing.exit_status(), 127);
        assert!(missing.to_string().contains("no-such-program"));
        let folder = find(OsStr::new("/usr"), None).unwrap_err();
        assert_eq!(folder.exit_status(), 126);
    }
}
