//! `fts` of libc, which lists folders without calling the functions that [`crate::folders`] stands
//! in front of. A walk that begins in what may have something of ours in it is walked here.
//!
//! The working folder is not changed: what programs may open from there ([`Entry::accpath`]) is the
//! whole path.
mod entry;

use std::ffi::{CStr, CString, c_char, c_int, c_short, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use urxe_device::AcrossFork;

use entry::{Entry, free, make};

use crate::errno::{Convention, Errno, MinusOne, Pointer};
use crate::next::{Next, c_name, call_next};
use crate::{folders, paths, tree};

/// `fts_info` of fts.h.
mod info {
    pub(super) const FOLDER: u16 = 1;
    pub(super) const CYCLE: u16 = 2;
    pub(super) const OTHER: u16 = 3;
    pub(super) const UNREADABLE: u16 = 4;
    pub(super) const AFTER: u16 = 6;
    pub(super) const FILE: u16 = 8;
    pub(super) const NO_STAT: u16 = 10;
    pub(super) const NO_STAT_WANTED: u16 = 11;
    pub(super) const LINK: u16 = 12;
    pub(super) const DANGLING: u16 = 13;
}

/// Options of fts.h.
const COMFOLLOW: c_int = 1;
const LOGICAL: c_int = 2;
const NOSTAT: c_int = 8;
const XDEV: c_int = 0x40;
const NAMEONLY: c_int = 0x100;

/// What a program asks to be done with an entry (`fts_set`).
const AGAIN: u16 = 1;
const FOLLOW: u16 = 2;
const SKIP: u16 = 4;

const ROOT_LEVEL: c_short = 0;

type Compare = Option<unsafe extern "C" fn(*const *const Entry, *const *const Entry) -> c_int>;
/// Entries of one folder that are still to be visited, the next one last.
type Siblings = Vec<*mut Entry>;

/// A folder that the walk is in, and what is left of it.
struct Level {
    /// Null for the roots.
    folder: *mut Entry,
    left: Siblings,
}

/// `FTS` of fts.h, which programs do not look into.
struct Walk {
    options: c_int,
    compare: Compare,
    /// The parent of the roots.
    top: *mut Entry,
    /// The folders that the walk is in; the roots come first.
    levels: Vec<Level>,
    /// What the program was told last.
    current: *mut Entry,
    /// What it asked for ahead: the entries of `current`.
    children: Option<Siblings>,
    /// File system of the root that the walk is below.
    of: libc::dev_t,
}

/// The addresses of all walks of ours, and how many there are: while there is none, libc's own need
/// no lookup.
pub(crate) static OPEN: AcrossFork<Vec<usize>> = AcrossFork::new(Vec::new());
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// The walk behind what a program got from `fts_open`.
///
/// # Safety
/// The program uses it on this thread only while the reference lives.
unsafe fn ours<'a>(walk: *mut c_void) -> Option<&'a mut Walk> {
    let is_ours = COUNT.load(Ordering::Acquire) > 0 && OPEN.lock().contains(&walk.addr());
    // SAFETY: open and ours, by the check, and by the caller's promise.
    is_ours.then(|| unsafe { &mut *walk.cast::<Walk>() })
}

impl Walk {
    fn has(&self, option: c_int) -> bool {
        self.options & option != 0
    }

    /// Looks what an entry is.
    ///
    /// # Safety
    /// A live entry of this walk.
    unsafe fn look(&self, entry: *mut Entry, follows: bool) {
        // SAFETY: by the caller's promise.
        unsafe {
            let (path, statp) = ((*entry).path, (*entry).statp);
            let mut is_there = if follows {
                paths::stat(path, statp)
            } else {
                paths::lstat(path, statp)
            } == 0;
            let mut is_dangling = false;
            if !is_there && follows {
                is_there = paths::lstat(path, statp) == 0;
                is_dangling = is_there;
            }
            if !is_there {
                (*entry).info = info::NO_STAT;
                (*entry).errno = last();
                return;
            }
            (*entry).dev = (*statp).st_dev;
            (*entry).ino = (*statp).st_ino;
            (*entry).nlink = (*statp).st_nlink;
            (*entry).info = match (*statp).st_mode & libc::S_IFMT {
                libc::S_IFDIR => info::FOLDER,
                libc::S_IFLNK if is_dangling => info::DANGLING,
                libc::S_IFLNK => info::LINK,
                libc::S_IFREG => info::FILE,
                _ => info::OTHER,
            };
            let mut above = (*entry).parent;
            while (*entry).info == info::FOLDER && !above.is_null() && (*above).level >= ROOT_LEVEL
            {
                if ((*above).dev, (*above).ino) == ((*entry).dev, (*entry).ino) {
                    (*entry).info = info::CYCLE;
                    (*entry).cycle = above;
                }
                above = (*above).parent;
            }
        }
    }

    /// The entries of a folder, in the program's order, the first one last; each is linked to the
    /// next.
    ///
    /// # Safety
    /// A live entry of this walk.
    unsafe fn list(&self, folder: *mut Entry) -> Option<Siblings> {
        // SAFETY: by the caller's promise; the folder is open until it is closed.
        unsafe {
            let stream = folders::opendir((*folder).path);
            if stream.is_null() {
                return None;
            }
            let mut found = Vec::new();
            loop {
                let entry = folders::readdir(stream);
                if entry.is_null() {
                    break;
                }
                let name = CStr::from_ptr((&raw const (*entry).d_name).cast());
                if matches!(name.to_bytes(), b"." | b"..") {
                    continue;
                }
                let above = CStr::from_ptr((*folder).path).to_bytes();
                let slash: &[u8] = if above.ends_with(b"/") { b"" } else { b"/" };
                let Ok(path) = CString::new([above, slash, name.to_bytes()].concat()) else {
                    continue;
                };
                let is_file = (*entry).d_type != libc::DT_DIR;
                let made = make(folder, (*folder).level + 1, path, name);
                if self.has(NOSTAT) && is_file && !self.has(LOGICAL) {
                    (*made).info = info::NO_STAT_WANTED;
                } else {
                    self.look(made, self.has(LOGICAL));
                }
                found.push(made);
            }
            folders::closedir(stream);
            Some(self.ordered(found))
        }
    }

    /// # Safety
    /// Live entries of this walk.
    unsafe fn ordered(&self, mut entries: Siblings) -> Siblings {
        // SAFETY: by the caller's promise; the program's function compares entries.
        unsafe {
            if let Some(compare) = self.compare {
                entries.sort_by(|left, right| {
                    let (left, right) = (left.cast_const(), right.cast_const());
                    compare(&raw const left, &raw const right).cmp(&0)
                });
            }
            for pair in entries.windows(2) {
                (*pair[0]).link = pair[1];
            }
        }
        entries.reverse();
        entries
    }

    /// The next thing to tell the program; null at the end.
    ///
    /// # Safety
    /// The walk is open.
    unsafe fn next(&mut self) -> *mut Entry {
        // SAFETY: entries are live until they are freed here, after the program has seen what comes
        // after them.
        unsafe {
            let current = self.current;
            if !current.is_null() {
                let asked = std::mem::take(&mut (*current).instr);
                match asked {
                    AGAIN => {
                        self.look(current, self.has(LOGICAL));
                        return current;
                    }
                    FOLLOW if matches!((*current).info, info::LINK | info::DANGLING) => {
                        self.look(current, true);
                        return current;
                    }
                    _ => {}
                }
                if (*current).info == info::FOLDER {
                    let is_other = self.has(XDEV) && (*current).dev != self.of;
                    if asked == SKIP || is_other {
                        self.forget_children();
                        (*current).info = info::AFTER;
                        return current;
                    }
                    let children = self.children.take().or_else(|| self.list(current));
                    let Some(children) = children else {
                        (*current).info = info::UNREADABLE;
                        (*current).errno = last();
                        return current;
                    };
                    self.levels.push(Level {
                        folder: current,
                        left: children,
                    });
                } else {
                    self.forget_children();
                    free(current);
                }
            }
            self.come_to_next()
        }
    }

    /// # Safety
    /// The walk is open, and what was current is left.
    unsafe fn come_to_next(&mut self) -> *mut Entry {
        // SAFETY: as in `next`.
        unsafe {
            loop {
                self.current = std::ptr::null_mut();
                let Some(level) = self.levels.last_mut() else {
                    return self.current;
                };
                let Some(next) = level.left.pop() else {
                    let folder = level.folder;
                    self.levels.pop();
                    if !folder.is_null() {
                        (*folder).info = info::AFTER;
                        self.current = folder;
                    }
                    return folder;
                };
                match std::mem::take(&mut (*next).instr) {
                    SKIP => {
                        free(next);
                        continue;
                    }
                    FOLLOW => self.look(next, true),
                    _ => {}
                }
                if (*next).level == ROOT_LEVEL {
                    self.of = (*next).dev;
                }
                self.current = next;
                return next;
            }
        }
    }

    /// # Safety
    /// The walk is open.
    unsafe fn forget_children(&mut self) {
        for child in self.children.take().unwrap_or_default() {
            // SAFETY: live, and only here.
            unsafe { free(child) };
        }
    }

    /// The first of the entries of what is current, or of the roots; null if there is none.
    ///
    /// # Safety
    /// The walk is open.
    unsafe fn children(&mut self, options: c_int) -> *mut Entry {
        if options & !NAMEONLY != 0 {
            Errno::INVAL.set();
            return std::ptr::null_mut();
        }
        Errno(0).set();
        let first = |entries: &Siblings| entries.last().copied().unwrap_or(std::ptr::null_mut());
        // SAFETY: by the caller's promise.
        unsafe {
            if self.current.is_null() {
                return self
                    .levels
                    .first()
                    .map_or(std::ptr::null_mut(), |level| first(&level.left));
            }
            if (*self.current).info != info::FOLDER {
                return std::ptr::null_mut();
            }
            self.forget_children();
            let Some(children) = self.list(self.current) else {
                return std::ptr::null_mut();
            };
            let found = first(&children);
            self.children = Some(children);
            found
        }
    }

    /// # Safety
    /// No thread uses the walk or its entries any more.
    unsafe fn end(mut self) {
        // SAFETY: by the caller's promise; each entry is in one place.
        unsafe {
            self.forget_children();
            let is_level = self.levels.iter().any(|level| level.folder == self.current);
            if !self.current.is_null() && !is_level {
                free(self.current);
            }
            for level in self.levels {
                level.left.into_iter().for_each(|entry| free(entry));
                if !level.folder.is_null() {
                    free(level.folder);
                }
            }
            free(self.top);
        }
    }
}

fn last() -> c_int {
    Errno::of(&std::io::Error::last_os_error()).0
}

/// Begins a walk if something of ours may be in it.
///
/// # Safety
/// As the manual page of fts(3) says of `fts_open`.
unsafe fn open(paths: *const *mut c_char, options: c_int, compare: Compare) -> Option<*mut Walk> {
    // SAFETY: by the caller's promise: strings, and a null pointer at their end.
    unsafe {
        let mut given = Vec::new();
        let mut at = paths;
        while !at.is_null() && !(*at).is_null() {
            given.push(CStr::from_ptr(*at));
            at = at.add(1);
        }
        let may_be_ours =
            |path: &&CStr| tree::route_to_list(libc::AT_FDCWD, path.as_ptr()).is_some();
        if !given.iter().any(may_be_ours) {
            return None;
        }
        let top = make(std::ptr::null_mut(), ROOT_LEVEL - 1, c"".to_owned(), c"");
        let mut walk = Walk {
            options,
            compare,
            top,
            levels: Vec::new(),
            current: std::ptr::null_mut(),
            children: None,
            of: 0,
        };
        let follows = walk.has(LOGICAL | COMFOLLOW);
        let roots = given.into_iter().map(|path| {
            let root = make(top, ROOT_LEVEL, path.to_owned(), path);
            walk.look(root, follows);
            root
        });
        let roots = roots.collect();
        let left = walk.ordered(roots);
        walk.levels.push(Level {
            folder: std::ptr::null_mut(),
            left,
        });
        let walk = Box::into_raw(Box::new(walk));
        OPEN.lock().push(walk.addr());
        COUNT.fetch_add(1, Ordering::Release);
        Some(walk)
    }
}

/// Interposes the functions that take a walk: `name(walk, arguments) = |walk| answer;`
macro_rules! interpose {
    ($($name:ident($walk:ident $(, $arg:ident: $ty:ty)*) -> $ret:ty = |$ours:ident| $answer:expr;)*) => {$(
        #[doc = concat!("`", stringify!($name), "` of libc.")]
        ///
        /// # Safety
        /// As its manual page says.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name($walk: *mut c_void $(, $arg: $ty)*) -> $ret {
            static NEXT: Next = Next::libc(c_name!(stringify!($name)));
            // SAFETY: by the caller's promise.
            unsafe {
                if let Some($ours) = ours($walk) {
                    return $answer;
                }
            }
            call_next!(NEXT, fn(*mut c_void $(, $ty)*) -> $ret, $walk $(, $arg)*)
                .unwrap_or_else(|| unreachable!("libc has all functions that it declares"))
        }
    )*};
}

interpose! {
    fts_read(walk) -> *mut Entry = |ours| ours.next();
    fts64_read(walk) -> *mut Entry = |ours| ours.next();
    fts_children(walk, options: c_int) -> *mut Entry = |ours| ours.children(options);
    fts64_children(walk, options: c_int) -> *mut Entry = |ours| ours.children(options);
    fts_set(walk, entry: *mut Entry, asked: c_int) -> c_int = |_ours| set(entry, asked);
    fts64_set(walk, entry: *mut Entry, asked: c_int) -> c_int = |_ours| set(entry, asked);
    fts_close(walk) -> c_int = |ours| close(ours);
    fts64_close(walk) -> c_int = |ours| close(ours);
}

/// # Safety
/// A live entry.
unsafe fn set(entry: *mut Entry, asked: c_int) -> c_int {
    match u16::try_from(asked) {
        Ok(asked @ 0..=SKIP) => {
            // SAFETY: by the caller's promise.
            unsafe { (*entry).instr = asked };
            0
        }
        _ => MinusOne::raw(Err(Errno::INVAL)),
    }
}

/// # Safety
/// The walk is open, and the program does not use it any more.
unsafe fn close(walk: *mut Walk) -> c_int {
    OPEN.lock().retain(|address| *address != walk.addr());
    COUNT.fetch_sub(1, Ordering::Release);
    // SAFETY: `open` made the box, and by the caller's promise.
    unsafe { Box::from_raw(walk).end() };
    0
}

/// Interposes the two forms of `fts_open`, which are the same on 64-bit Linux.
macro_rules! opens {
    ($($name:ident)*) => {$(
        #[doc = concat!("`", stringify!($name), "` of libc.")]
        ///
        /// # Safety
        /// As its manual page says.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name(
            paths: *const *mut c_char,
            options: c_int,
            compare: Compare,
        ) -> *mut c_void {
            static NEXT: Next = Next::libc(c_name!(stringify!($name)));
            // SAFETY: by the caller's promise.
            match unsafe { open(paths, options, compare) } {
                Some(walk) => walk.cast(),
                None => call_next!(
                    NEXT,
                    fn(*const *mut c_char, c_int, Compare) -> *mut c_void,
                    paths,
                    options,
                    compare
                )
                .unwrap_or_else(|| Pointer::raw(Err(Errno::NOSYS))),
            }
        }
    )*};
}

opens! { fts_open fts64_open }
