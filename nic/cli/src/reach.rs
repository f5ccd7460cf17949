//! Whether liburxe.so gets into a program that is about to start: what the files that the kernel
//! executes for it say.
//!
//! The dynamic linker preloads the library, so a program without one, or with one that refuses,
//! sees no device. Where nothing that is started could see one, that is an error before anything
//! starts; where programs that it starts may, it is a warning.
use std::ffi::OsString;
use std::fmt;
use std::fs::{File, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use elf::{Elf, Machine};

use crate::program::NotRun;

mod elf;
mod start;

/// The extended attribute that has a file's capabilities (capabilities(7)).
const CAPABILITIES: &str = "security.capability";
/// `VFS_CAP_FLAGS_EFFECTIVE` of linux/capability.h.
const CAPABILITIES_EFFECTIVE: u8 = 1;

/// Why the library does not get into a program.
#[derive(Debug, PartialEq, Eq)]
enum Obstacle {
    /// The kernel gives it other rights than the caller has (ld.so(8), secure-execution mode).
    OtherRights(&'static str),
    /// Its libc is not the library's.
    OtherLibc {
        dynamic_linker: PathBuf,
        libc: Libc,
        of_library: Libc,
    },
    /// Its processor is not the library's.
    OtherMachine {
        machine: Machine,
        of_library: Machine,
    },
    /// It has no dynamic linker.
    Static { is_go: bool },
}

/// An implementation of the C library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Libc {
    Glibc,
    Musl,
}

impl fmt::Display for Libc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Glibc => "glibc",
            Self::Musl => "musl",
        })
    }
}

impl Obstacle {
    /// Whether what this program starts sees no device either.
    fn is_in_the_way_of_all(&self) -> bool {
        matches!(self, Self::OtherRights(_) | Self::OtherLibc { .. })
    }

    /// Whether it is in the way of what the program does without liburxe.so, too: read `/sys`.
    fn prevents_start(&self) -> bool {
        matches!(self, Self::OtherLibc { .. })
    }

    /// What is wrong with a file, and what follows; the file stands before it.
    fn problem(&self) -> String {
        match self {
            Self::OtherRights(by) => format!(
                "runs with other rights than yours ({by}), so the dynamic linker ignores \
                 LD_PRELOAD, and what it starts is not told of it: they will see no urxe device"
            ),
            Self::OtherLibc {
                dynamic_linker,
                libc,
                of_library,
            } => format!(
                "is built for {libc} (its dynamic linker is {}), and liburxe.so for \
                 {of_library}: the two do not go together, and it would not start",
                dynamic_linker.display()
            ),
            Self::OtherMachine {
                machine,
                of_library,
            } => format!(
                "is built for {machine}, and liburxe.so for {of_library}, so the dynamic \
                 linker leaves it out: it will see no urxe device; programs that it starts may"
            ),
            Self::Static { is_go } => {
                let kind = if *is_go {
                    "written in Go and built without cgo, so it is statically linked"
                } else {
                    "statically linked"
                };
                format!(
                    "is {kind}, and no dynamic linker loads liburxe.so into it: \
                     it will see no urxe device; programs that it starts may"
                )
            }
        }
    }

    fn remedy(&self) -> String {
        match self {
            Self::OtherRights(_) => "start urxe with these rights already (sudo urxe run -- ...), \
                 or run a copy of the file (cp keeps neither setuid bits nor capabilities)"
                .into(),
            Self::OtherLibc {
                of_library: Libc::Glibc,
                ..
            } => "run a build for glibc, such as Debian's package of the program; in containers, \
                 use an image with glibc (Debian, Ubuntu, Fedora) in place of Alpine's"
                .into(),
            Self::OtherLibc { of_library, .. } => format!("run a build for {of_library}"),
            Self::OtherMachine { of_library, .. } => {
                format!("build or install the program for {of_library}")
            }
            Self::Static { is_go: true } => "build it with CGO_ENABLED=1 if it calls libibverbs; \
                 if it only reads /sys, add --sysfs to urxe run"
                .into(),
            Self::Static { is_go: false } => {
                "link it dynamically (without -static) if it calls libibverbs; \
                 if it only reads /sys, add --sysfs to urxe run"
                    .into()
            }
        }
    }
}

/// Says on stderr if the library does not get into the program, and programs that it starts may
/// still see a device.
///
/// # Errors
/// When nothing that is started could see one.
pub(crate) fn check(
    program: &Path,
    arguments: &[OsString],
    library: &Path,
    with_sysfs: bool,
) -> Result<(), NotRun> {
    let library = File::open(library).ok().and_then(|file| elf::read(&file));
    let files = start::files(program, arguments, std::env::var_os("PATH").as_deref());
    let found = files.iter().enumerate().find_map(|(index, file)| {
        let obstacle = obstacle(file, library.as_ref()?)?;
        let is_last = index + 1 == files.len();
        (is_last || obstacle.is_in_the_way_of_all()).then_some((file, obstacle))
    });
    let Some((file, obstacle)) = found else {
        return Ok(());
    };
    if with_sysfs && !obstacle.prevents_start() {
        return Ok(());
    }
    let who = if file == program {
        file.display().to_string()
    } else {
        format!("{} starts {}, which", program.display(), file.display())
    };
    let problem = format!("{who} {}", obstacle.problem());
    let remedy = obstacle.remedy();
    if obstacle.is_in_the_way_of_all() {
        return Err(NotRun::NotExecutable(format!(
            "{problem}\n  what to do: {remedy}\n  urxe run --anyway starts it all the same"
        )));
    }
    eprintln!(
        "urxe: warning: {problem}\n  what to do: {remedy}\n  urxe run --anyway says nothing of it"
    );
    Ok(())
}

fn obstacle(file: &Path, library: &Elf) -> Option<Obstacle> {
    let content = File::open(file).ok();
    let about = file.metadata().ok()?;
    // A file that others may only execute still tells of its bits.
    let program = content.as_ref().and_then(elf::read);
    if let Some(by) = other_rights(file, &about) {
        return Some(Obstacle::OtherRights(by));
    }
    let program = program?;
    if program.machine != library.machine {
        return Some(Obstacle::OtherMachine {
            machine: program.machine,
            of_library: library.machine,
        });
    }
    let Some(dynamic_linker) = program.interpreter else {
        // The dynamic linker itself, which loads what its arguments name, has no other.
        let is_go = program.is_go;
        return (!program.is_library).then_some(Obstacle::Static { is_go });
    };
    let (libc, of_library) = (libc_of_linker(&dynamic_linker)?, libc_of_needed(library)?);
    (libc != of_library).then_some(Obstacle::OtherLibc {
        dynamic_linker,
        libc,
        of_library,
    })
}

fn libc_of_linker(dynamic_linker: &Path) -> Option<Libc> {
    let name = dynamic_linker.file_name()?.as_bytes();
    if name.starts_with(b"ld-musl-") {
        Some(Libc::Musl)
    } else if name.starts_with(b"ld-linux") || name.starts_with(b"ld64.so") {
        Some(Libc::Glibc)
    } else {
        None
    }
}

fn libc_of_needed(library: &Elf) -> Option<Libc> {
    library.needed.iter().find_map(|name| match name.as_str() {
        "libc.so.6" => Some(Libc::Glibc),
        "libc.so" => Some(Libc::Musl),
        name if name.starts_with("libc.musl-") => Some(Libc::Musl),
        _ => None,
    })
}

/// What gives a program other rights than the caller has, if anything does: the rules of execve(2),
/// and of `cap_bprm_creds_from_file` (security/commoncap.c). A security module (AppArmor, SELinux)
/// may do so as well, which the file does not tell.
fn other_rights(file: &Path, about: &Metadata) -> Option<&'static str> {
    // SAFETY: these calls cannot fail, and change nothing.
    let (user, group, gains_nothing) = unsafe {
        let gains_nothing = libc::prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1;
        (libc::getuid(), libc::getgid(), gains_nothing)
    };
    let mount = rustix::fs::statvfs(file).ok()?;
    if mount.f_flag.contains(rustix::fs::StatVfsMountFlags::NOSUID) || gains_nothing {
        return None;
    }
    let mode = about.permissions().mode();
    // Without the group's right to execute, the bit once meant locking.
    let sets_group = mode & libc::S_ISGID != 0 && mode & libc::S_IXGRP != 0;
    if mode & libc::S_ISUID != 0 && about.uid() != user {
        Some("setuid")
    } else if sets_group && about.gid() != group {
        Some("setgid")
    } else if user != 0 && has_capabilities(file) {
        Some("file capabilities")
    } else {
        None
    }
}

/// Whether a process gets capabilities by executing the file.
fn has_capabilities(file: &Path) -> bool {
    // `struct vfs_ns_cap_data`, little-endian: flags and revision, then two words each of what is
    // permitted and inheritable.
    let mut value = [0; 24];
    let Ok(bytes) = rustix::fs::getxattr(file, CAPABILITIES, &mut value) else {
        return false;
    };
    let permits = |at| value[at..at + 4] != [0; 4];
    bytes >= 12 && (value[0] & CAPABILITIES_EFFECTIVE != 0 || permits(4) || permits(12))
}

#[cfg(test)]
mod tests;
