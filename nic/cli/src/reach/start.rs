//! Which files the kernel executes when a program is started: scripts lead to their interpreter,
//! and `env` to the program that it starts.
//!
//! Nothing else that starts programs is followed. Only some of its words are the program's, and
//! which ones depends on options that it alone knows.
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::program;

/// Bytes of a script's first line that Linux reads (`BINPRM_BUF_SIZE`, linux/binfmts.h).
const FIRST_LINE_BYTES: usize = 256;
/// How many scripts and `env` may stand before the program. Linux follows five scripts.
const STEPS_MAX: usize = 8;

/// The files that are executed one after the other, scripts left out, with the program itself last.
/// They can be opened, as far as this user may.
pub(super) fn files(program: &Path, arguments: &[OsString], path: Option<&OsStr>) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut next = Some((program.to_owned(), arguments.to_owned()));
    for _ in 0..STEPS_MAX {
        let Some((program, arguments)) = next.take() else {
            break;
        };
        if let Some(line) = first_line(&program) {
            next = interpreter(&line).map(|(interpreter, argument)| {
                let words = argument.into_iter().chain([program.into_os_string()]);
                (interpreter, words.chain(arguments).collect())
            });
            continue;
        }
        if program.file_name() == Some(OsStr::new("env")) {
            next = behind_env(&arguments)
                .and_then(|(name, arguments)| Some((program::find(&name, path).ok()?, arguments)));
        }
        files.push(program);
    }
    // What is not looked at any more is not known.
    if next.is_some() { Vec::new() } else { files }
}

/// What follows `#!` in a script.
fn first_line(script: &Path) -> Option<Vec<u8>> {
    let file = File::open(script).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut line = [0; FIRST_LINE_BYTES];
    let bytes = file.read_at(&mut line, 0).ok()?;
    Some(line[..bytes].strip_prefix(b"#!")?.to_owned())
}

/// The interpreter, and the rest of the line: one argument, whatever it holds.
fn interpreter(line: &[u8]) -> Option<(PathBuf, Option<OsString>)> {
    let end = line.iter().position(|byte| matches!(byte, b'\n' | 0));
    let line = line[..end.unwrap_or(line.len())].trim_ascii();
    let end = line.iter().position(|byte| matches!(byte, b' ' | b'\t'));
    let (name, argument) = line.split_at(end.unwrap_or(line.len()));
    let argument = argument.trim_ascii();
    let argument = (!argument.is_empty()).then(|| OsString::from_vec(argument.to_owned()));
    let name = PathBuf::from(OsStr::from_bytes(name));
    name.is_file().then_some((name, argument))
}

/// The program that `env` starts with these arguments, and the program's own. None where it starts
/// none, in another folder, with another search path or without the preload, or where an option is
/// not known here.
fn behind_env(arguments: &[OsString]) -> Option<(OsString, Vec<OsString>)> {
    let mut words: Vec<OsString> = arguments.iter().rev().cloned().collect();
    while let Some(word) = words.pop() {
        let text = word.to_str()?;
        if let Some(line) = text
            .strip_prefix("-S")
            .or(text.strip_prefix("--split-string="))
        {
            let line = if line.is_empty() {
                words.pop()?
            } else {
                line.into()
            };
            // Quotes, escapes and variables would have to be read as env does.
            let line = line
                .to_str()
                .filter(|line| !line.contains(['"', '\'', '\\', '$', '#']))?;
            words.extend(line.split_ascii_whitespace().rev().map(OsString::from));
        } else if matches!(text, "-v" | "--debug" | "--") {
        } else if text.starts_with('-') {
            return None;
        } else if let Some((name, _)) = text.split_once('=') {
            if matches!(name, "PATH" | "LD_PRELOAD") {
                return None;
            }
        } else {
            words.reverse();
            return Some((word, words));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ')
            .filter(|word| !word.is_empty())
            .map(OsString::from)
            .collect()
    }

    #[test]
    fn the_line_of_a_script_has_an_interpreter_and_one_argument() {
        let line = |text: &str| interpreter(text.as_bytes());
        let sh = PathBuf::from("/bin/sh");
        assert_eq!(line("/bin/sh\necho"), Some((sh.clone(), None)));
        assert_eq!(
            line(" \t/bin/sh  -e -u \n"),
            Some((sh.clone(), Some("-e -u".into())))
        );
        assert_eq!(line("/bin/sh"), Some((sh, None)));
        assert_eq!(line("\n"), None);
        assert_eq!(line("/no/such/interpreter\n"), None);
        assert_eq!(line("/\n"), None);
    }

    #[test]
    fn env_is_followed_as_far_as_its_words_are_plain() {
        let behind = |text: &str| {
            let (program, arguments) = behind_env(&words(text))?;
            let all: Vec<_> = [program].into_iter().chain(arguments).collect();
            Some(all.join(OsStr::new(" ")).into_string().unwrap())
        };
        assert_eq!(behind("A=1 B= prog -x A=2").as_deref(), Some("prog -x A=2"));
        assert_eq!(behind("-v -- prog").as_deref(), Some("prog"));
        assert_eq!(behind("-S prog -x").as_deref(), Some("prog -x"));
        let split = behind_env(&["-S A=1 prog  -x".into(), "file".into()]).unwrap();
        assert_eq!(split, ("prog".into(), words("-x file")));
        for unclear in [
            "",
            "A=1",
            "-i prog",
            "-u A prog",
            "PATH=/x prog",
            "-S $A",
            "-C / prog",
        ] {
            assert_eq!(behind(unclear), None, "{unclear}");
        }
    }

    #[test]
    fn scripts_that_lead_in_circles_say_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("script");
        std::fs::write(&script, format!("#!{}\n", script.display())).unwrap();
        assert_eq!(files(&script, &[], None), [] as [PathBuf; 0]);
        std::fs::write(&script, "#!/usr/bin/env sh\n").unwrap();
        let path = Some(OsStr::new("/usr/bin"));
        assert_eq!(
            files(&script, &[], path),
            ["/usr/bin/env", "/usr/bin/sh"].map(PathBuf::from)
        );
    }
}
