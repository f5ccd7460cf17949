//! `ftw` and `nftw` of libc, which list folders without calling the functions that
//! [`crate::folders`] stands in front of. A walk that begins in what may have something of ours in
//! it is walked here.
use std::collections::BTreeSet;
use std::ffi::{CStr, CString, c_char, c_int};

use libc::stat as Stat;

use crate::errno::{Convention, Errno, MinusOne};
use crate::next::{Next, c_name, call_next};
use crate::{cwd, folders, paths, tree};

/// `struct FTW` of ftw.h.
#[repr(C)]
pub struct Position {
    base: c_int,
    level: c_int,
}

/// What a program has called for each thing: by ftw without the last argument.
type Visit = unsafe extern "C" fn(*const c_char, *const Stat, c_int, *mut Position) -> c_int;

/// What a thing is (ftw.h).
const FILE: c_int = 0;
const FOLDER: c_int = 1;
const UNREADABLE_FOLDER: c_int = 2;
const UNKNOWN: c_int = 3;
const LINK: c_int = 4;
const FOLDER_AFTER: c_int = 5;
const DANGLING_LINK: c_int = 6;

/// How it is walked (ftw.h).
const PHYSICAL: c_int = 1;
const MOUNT: c_int = 2;
const CHDIR: c_int = 4;
const DEPTH: c_int = 8;
const ACTIONS: c_int = 16;

/// What a program answers with `ACTIONS`.
const SKIP_SUBTREE: c_int = 2;
const SKIP_SIBLINGS: c_int = 3;

struct Walk {
    visit: Visit,
    flags: c_int,
    /// Whether it is nftw, which knows more kinds of things.
    is_new: bool,
    /// The file system of the beginning.
    of: libc::dev_t,
    /// Folders that were visited, where links are followed.
    seen: BTreeSet<(libc::dev_t, libc::ino_t)>,
}

impl Walk {
    fn has(&self, flag: c_int) -> bool {
        self.flags & flag != 0
    }

    /// What is at `path`, and what it is for the program.
    ///
    /// # Safety
    /// None needed; it calls functions that the program may call.
    unsafe fn look(&self, path: &CStr) -> (Stat, c_int) {
        // SAFETY: all zeros is a stat, and the path is a string.
        unsafe {
            let mut status: Stat = std::mem::zeroed();
            let is_there = if self.has(PHYSICAL) {
                paths::lstat(path.as_ptr(), &raw mut status) == 0
            } else {
                paths::stat(path.as_ptr(), &raw mut status) == 0
            };
            if !is_there {
                let is_link = paths::lstat(path.as_ptr(), &raw mut status) == 0
                    && status.st_mode & libc::S_IFMT == libc::S_IFLNK;
                let kind = if is_link && self.is_new {
                    DANGLING_LINK
                } else {
                    UNKNOWN
                };
                return (status, kind);
            }
            let kind = match status.st_mode & libc::S_IFMT {
                libc::S_IFDIR => FOLDER,
                libc::S_IFLNK => LINK,
                _ => FILE,
            };
            (status, kind)
        }
    }

    /// Tells the program.
    ///
    /// # Safety
    /// The program's function may be called.
    unsafe fn tell(&self, path: &CStr, status: &Stat, kind: c_int, level: c_int) -> c_int {
        let name = path.to_bytes().iter().rposition(|byte| *byte == b'/');
        let base = name.map_or(0, |slash| slash + 1);
        if self.has(CHDIR) {
            let folder = path.to_bytes()[..base].to_vec();
            if let Ok(folder) = CString::new(if base == 0 { b".".to_vec() } else { folder }) {
                // SAFETY: a string.
                if unsafe { cwd::chdir(folder.as_ptr()) } != 0 {
                    return -1;
                }
            }
        }
        let mut position = Position {
            base: base.try_into().unwrap_or(c_int::MAX),
            level,
        };
        // SAFETY: by the caller's promise.
        unsafe { (self.visit)(path.as_ptr(), status, kind, &raw mut position) }
    }

    /// Walks what is at `path`; what ends the walk, or 0.
    ///
    /// # Safety
    /// The program's function may be called.
    unsafe fn walk(&mut self, path: &CStr, level: c_int) -> c_int {
        // SAFETY: by the caller's promise.
        unsafe {
            let (status, kind) = self.look(path);
            if self.has(MOUNT) && status.st_dev != self.of && kind != UNKNOWN {
                return 0;
            }
            if kind != FOLDER {
                return self.tell(path, &status, kind, level);
            }
            // Links may lead round in circles.
            if !self.has(PHYSICAL) && !self.seen.insert((status.st_dev, status.st_ino)) {
                return 0;
            }
            let Some(names) = names(path) else {
                return self.tell(path, &status, UNREADABLE_FOLDER, level);
            };
            if !self.has(DEPTH) {
                match self.tell(path, &status, FOLDER, level) {
                    0 => {}
                    SKIP_SUBTREE if self.has(ACTIONS) => return 0,
                    ends => return ends,
                }
            }
            for name in names {
                let inside = [path.to_bytes(), b"/", name.as_bytes()].concat();
                let Ok(inside) = CString::new(inside) else {
                    continue;
                };
                match self.walk(&inside, level + 1) {
                    0 => {}
                    SKIP_SUBTREE if self.has(ACTIONS) => {}
                    SKIP_SIBLINGS if self.has(ACTIONS) => break,
                    ends => return ends,
                }
            }
            if self.has(DEPTH) {
                return self.tell(path, &status, FOLDER_AFTER, level);
            }
            0
        }
    }
}

/// The names in a folder.
///
/// # Safety
/// None needed; it calls functions that the program may call.
unsafe fn names(path: &CStr) -> Option<Vec<CString>> {
    // SAFETY: a string, and a folder that is open until it is closed.
    unsafe {
        let folder = folders::opendir(path.as_ptr());
        if folder.is_null() {
            return None;
        }
        let mut names = Vec::new();
        loop {
            let entry = folders::readdir(folder);
            if entry.is_null() {
                break;
            }
            let name = CStr::from_ptr((&raw const (*entry).d_name).cast());
            if !matches!(name.to_bytes(), b"." | b"..") {
                names.push(name.to_owned());
            }
        }
        folders::closedir(folder);
        Some(names)
    }
}

/// Walks from `path` if something of ours may be there.
///
/// # Safety
/// `path` is null or a string, the program's function may be called.
unsafe fn walk(
    path: *const c_char,
    visit: Option<Visit>,
    flags: c_int,
    is_new: bool,
) -> Option<c_int> {
    // SAFETY: by the caller's promise.
    unsafe {
        tree::route_to_list(libc::AT_FDCWD, path)?;
        let visit = visit?;
        // No slash at the end, as libc does it.
        let given = CStr::from_ptr(path).to_bytes();
        let slashes = given.iter().rev().take_while(|byte| **byte == b'/').count();
        let kept = if slashes == given.len() {
            1
        } else {
            given.len() - slashes
        };
        let begin = CString::new(&given[..kept]).ok()?;
        let mut walk = Walk {
            visit,
            flags,
            is_new,
            of: 0,
            seen: BTreeSet::new(),
        };
        let (status, kind) = walk.look(&begin);
        if kind == UNKNOWN {
            return Some(MinusOne::raw(Err(Errno(libc::ENOENT))));
        }
        walk.of = status.st_dev;
        let before = walk.has(CHDIR).then(|| cwd::get_current_dir_name());
        let ends = walk.walk(&begin, 0);
        if let Some(before) = before.filter(|before| !before.is_null()) {
            cwd::chdir(before);
            libc::free(before.cast());
        }
        let is_action = walk.has(ACTIONS) && matches!(ends, SKIP_SUBTREE | SKIP_SIBLINGS);
        Some(if is_action { 0 } else { ends })
    }
}

/// Interposes the forms of both.
macro_rules! walks {
    ($($name:ident($($flags:ident)?) $is_new:literal;)*) => {$(
        #[doc = concat!("`", stringify!($name), "` of libc.")]
        ///
        /// # Safety
        /// As its manual page says.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name(
            path: *const c_char, visit: Option<Visit>, descriptors: c_int $(, $flags: c_int)?
        ) -> c_int {
            static NEXT: Next = Next::libc(c_name!(stringify!($name)));
            // SAFETY: by the caller's promise.
            let walked = unsafe { walk(path, visit, walks!(@flags $($flags)?), $is_new) };
            walked.unwrap_or_else(|| {
                call_next!(
                    NEXT,
                    fn(*const c_char, Option<Visit>, c_int $(, walks!(@int $flags))?) -> c_int,
                    path, visit, descriptors $(, $flags)?
                )
                .unwrap_or_else(|| MinusOne::raw(Err(Errno::NOSYS)))
            })
        }
    )*};
    (@flags) => { 0 };
    (@flags $flags:ident) => { $flags };
    (@int $flags:ident) => { c_int };
}

walks! {
    ftw() false;
    ftw64() false;
    nftw(flags) true;
    nftw64(flags) true;
}
