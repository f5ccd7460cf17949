//! Listing folders: opendir, readdir and their relatives of libc. A folder that is ours, or that
//! our devices share with real ones, is listed into memory when it is opened; a program holds a
//! pointer to that list in place of libc's.
use std::collections::BTreeSet;
use std::ffi::{CStr, CString, c_char, c_int, c_long, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use libc::{DIR, dirent};
use urxe_device::AcrossFork;

use crate::descriptors;
use crate::errno::{Convention, Errno, MinusOne, Outcome, Pointer};
use crate::next::{Next, c_name, call_next};
use crate::paths::{self, inode};
use crate::sysfs::Node;
use crate::tree::{self, Listed};

/// An open folder. Programs know it by its address.
struct Folder {
    entries: Vec<dirent>,
    position: usize,
    /// The descriptor that stands for it.
    fd: c_int,
}

/// The addresses of all open folders of ours, and how many there are: while there is none, libc's
/// own need no lookup.
pub(crate) static OPEN: AcrossFork<BTreeSet<usize>> = AcrossFork::new(BTreeSet::new());
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Whether a pointer that a program got from opendir is one of ours.
fn is_ours(folder: *mut DIR) -> bool {
    COUNT.load(Ordering::Acquire) > 0 && OPEN.lock().contains(&folder.addr())
}

/// The folder behind a pointer, for the thread that uses it: libc's, too, are for one at a time.
///
/// # Safety
/// The program uses it on this thread only while the reference lives.
unsafe fn ours<'a>(folder: *mut DIR) -> Option<&'a mut Folder> {
    // SAFETY: an open folder of ours, by the check, and by the caller's promise.
    is_ours(folder).then(|| unsafe { &mut *folder.cast::<Folder>() })
}

/// The entries of a folder that is ours or shared, at a path without links.
fn entries(path: &str) -> Vec<dirent> {
    let mut entries = if tree::at(path) == Some(Node::Shared) {
        real_entries(path)
    } else {
        Vec::new()
    };
    let mut known: BTreeSet<String> = entries.iter().map(name_of).collect();
    let up = path.rsplit_once('/').map_or("/", |(up, _)| up);
    let dots = [
        (".".to_owned(), path.to_owned()),
        ("..".to_owned(), up.to_owned()),
    ];
    let ours = tree::list(path).into_iter();
    let ours = ours.map(|name| {
        let inside = format!("{path}/{name}");
        (name, inside)
    });
    for (name, path) in dots.into_iter().chain(ours) {
        if known.insert(name.clone()) {
            entries.push(entry(&path, &name));
        }
    }
    entries.sort_by_key(name_of);
    entries
}

fn name_of(entry: &dirent) -> String {
    // SAFETY: an entry's name is a string.
    let name = unsafe { CStr::from_ptr((&raw const entry.d_name).cast()) };
    name.to_string_lossy().into_owned()
}

fn entry(path: &str, name: &str) -> dirent {
    // SAFETY: all zeros is a valid dirent.
    let mut entry: dirent = unsafe { std::mem::zeroed() };
    entry.d_ino = inode(path);
    entry.d_reclen = size_of::<dirent>().try_into().unwrap_or(u16::MAX);
    entry.d_type = match tree::at(path) {
        Some(Node::Link(_)) => libc::DT_LNK,
        Some(Node::File(_) | Node::Mute(_)) => libc::DT_REG,
        Some(Node::Character(_)) => libc::DT_CHR,
        Some(Node::Folder | Node::Shared) | None => libc::DT_DIR,
    };
    crate::device::put(&mut entry.d_name, name);
    entry
}

static NEXT_OPEN: Next = Next::libc(c"opendir");
static NEXT_CLOSE: Next = Next::libc(c"closedir");

/// What the real folder has.
fn real_entries(path: &str) -> Vec<dirent> {
    static READ: Next = Next::libc(c"readdir");
    let mut entries = Vec::new();
    let Ok(path) = CString::new(path) else {
        return entries;
    };
    let folder = call_next!(NEXT_OPEN, fn(*const c_char) -> *mut DIR, path.as_ptr());
    let Some(folder) = folder.filter(|folder| !folder.is_null()) else {
        return entries;
    };
    while let Some(entry) = call_next!(READ, fn(*mut DIR) -> *mut dirent, folder)
        && !entry.is_null()
    {
        // SAFETY: libc's entry is valid until the next call, as long as it says, and its name is a
        // string.
        let copy = unsafe {
            let mut copy: dirent = std::mem::zeroed();
            let length = usize::from((*entry).d_reclen).min(size_of::<dirent>());
            std::ptr::copy_nonoverlapping(
                entry.cast_const().cast::<u8>(),
                (&raw mut copy).cast(),
                length,
            );
            copy
        };
        entries.push(copy);
    }
    call_next!(NEXT_CLOSE, fn(*mut DIR) -> c_int, folder);
    entries
}

/// A descriptor for a folder that is ours or shared, at a path without links: the kernel's own
/// where it has the folder.
fn descriptor(path: &str) -> Outcome<c_int> {
    static NEXT: Next = Next::libc(c"open");
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    if tree::at(path) == Some(Node::Shared) {
        let real = CString::new(path).map_err(|_| Errno::INVAL)?;
        let opened = call_next!(
            NEXT,
            fn(*const c_char, c_int) -> c_int,
            real.as_ptr(),
            flags
        );
        if let Some(fd @ 0..) = opened {
            return Ok(fd);
        }
    }
    descriptors::open_folder(path, flags)
}

/// Hands an open folder to C.
fn give(entries: Vec<dirent>, fd: c_int) -> *mut DIR {
    let folder: *mut DIR = Box::into_raw(Box::new(Folder {
        entries,
        position: 0,
        fd,
    }))
    .cast();
    OPEN.lock().insert(folder.addr());
    COUNT.fetch_add(1, Ordering::Release);
    folder
}

/// Interposes functions of libc that take a folder: `name(folder, arguments) = |ours| answer;`
macro_rules! interpose {
    ($($name:ident($folder:ident $(, $arg:ident: $ty:ty)*) -> $ret:ty = |$ours:ident| $answer:expr;)*) => {$(
        #[doc = concat!("`", stringify!($name), "` of libc.")]
        ///
        /// # Safety
        /// As its manual page says.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name($folder: *mut DIR $(, $arg: $ty)*) -> $ret {
            static NEXT: Next = Next::libc(c_name!(stringify!($name)));
            // SAFETY: by the caller's promise.
            if let Some($ours) = unsafe { ours($folder) } {
                return $answer;
            }
            call_next!(NEXT, fn(*mut DIR $(, $ty)*) -> $ret, $folder $(, $arg)*)
                .unwrap_or_else(|| unreachable!("libc has all functions that it declares"))
        }
    )*};
}

impl Folder {
    /// The next entry, or null.
    fn next(&mut self) -> *mut dirent {
        let entry = self.entries.get_mut(self.position);
        self.position += usize::from(entry.is_some());
        entry.map_or(std::ptr::null_mut(), std::ptr::from_mut)
    }

    /// The next entry, copied to `to`; `result` is then `to`, or null at the end.
    ///
    /// # Safety
    /// Both are writable.
    unsafe fn next_into(&mut self, to: *mut dirent, result: *mut *mut dirent) -> c_int {
        let entry = self.next();
        // SAFETY: by the caller's promise.
        unsafe {
            if entry.is_null() {
                *result = std::ptr::null_mut();
            } else {
                *to = *entry;
                *result = to;
            }
        }
        0
    }

    fn seek(&mut self, position: c_long) {
        self.position = usize::try_from(position).unwrap_or(0);
    }
}

interpose! {
    readdir(folder) -> *mut dirent = |ours| ours.next();
    readdir64(folder) -> *mut dirent = |ours| ours.next();
    // SAFETY: by the caller's promise.
    readdir_r(folder, to: *mut dirent, result: *mut *mut dirent) -> c_int = |ours| unsafe { ours.next_into(to, result) };
    // SAFETY: by the caller's promise.
    readdir64_r(folder, to: *mut dirent, result: *mut *mut dirent) -> c_int = |ours| unsafe { ours.next_into(to, result) };
    rewinddir(folder) -> () = |ours| ours.seek(0);
    seekdir(folder, position: c_long) -> () = |ours| ours.seek(position);
    telldir(folder) -> c_long = |ours| c_long::try_from(ours.position).unwrap_or(c_long::MAX);
    dirfd(folder) -> c_int = |ours| ours.fd;
    closedir(folder) -> c_int = |ours| close(ours);
}

fn close(folder: &mut Folder) -> c_int {
    let address = std::ptr::from_mut(folder);
    OPEN.lock().remove(&address.addr());
    COUNT.fetch_sub(1, Ordering::Release);
    // SAFETY: `give` made the box, and the program closes it once.
    let folder = unsafe { Box::from_raw(address) };
    // SAFETY: the descriptor is the folder's own.
    unsafe { libc::close(folder.fd) }
}

/// `opendir` of libc.
///
/// # Safety
/// As its manual page says.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn opendir(path: *const c_char) -> *mut DIR {
    // SAFETY: by the caller's promise.
    let listed = unsafe { tree::route_to_list(libc::AT_FDCWD, path) };
    let path = match &listed {
        Some(Listed::Ours(path)) => {
            return Pointer::raw(descriptor(path).map(|fd| give(entries(path), fd)));
        }
        Some(Listed::Failed(errno)) => return Pointer::raw(Err(*errno)),
        Some(Listed::Instead(other)) => other.as_ptr(),
        None => path,
    };
    call_next!(NEXT_OPEN, fn(*const c_char) -> *mut DIR, path)
        .unwrap_or_else(|| Pointer::raw(Err(Errno::NOSYS)))
}

/// `fdopendir` of libc: the folder owns the descriptor from then on.
///
/// # Safety
/// As its manual page says.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn fdopendir(fd: c_int) -> *mut DIR {
    static NEXT: Next = Next::libc(c"fdopendir");
    let shared = || {
        let path = paths::may_be_shared(fd).then(|| descriptors::link_of(fd))??;
        (tree::may_be_ours(path.as_bytes()) && tree::at(&path) == Some(Node::Shared))
            .then_some(path)
    };
    match descriptors::folder(fd).or_else(shared) {
        Some(path) => give(entries(&path), fd),
        None => call_next!(NEXT, fn(c_int) -> *mut DIR, fd)
            .unwrap_or_else(|| Pointer::raw(Err(Errno::NOSYS))),
    }
}

/// What a program passes to scandir to choose entries, and to order them.
type Choose = Option<unsafe extern "C" fn(*const dirent) -> c_int>;
type Order = Option<unsafe extern "C" fn(*mut *const dirent, *mut *const dirent) -> c_int>;

/// Interposes the forms of scandir.
macro_rules! scans {
    ($($name:ident [$($at:ident)?];)*) => {$(
        #[doc = concat!("`", stringify!($name), "` of libc.")]
        ///
        /// # Safety
        /// As its manual page says.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name(
            $($at: c_int,)? path: *const c_char, list: *mut *mut *mut dirent, choose: Choose, order: Order,
        ) -> c_int {
            static NEXT: Next = Next::libc(c_name!(stringify!($name)));
            // SAFETY: by the caller's promise.
            let listed = unsafe { tree::route_to_list(scans!(@at [$($at)?]), path) };
            let path = match &listed {
                Some(Listed::Ours(path)) => {
                    // SAFETY: by the caller's promise.
                    return MinusOne::raw(unsafe { scan(&entries(path), list, choose, order) });
                }
                Some(Listed::Failed(errno)) => return MinusOne::raw(Err(*errno)),
                Some(Listed::Instead(other)) => other.as_ptr(),
                None => path,
            };
            call_next!(
                NEXT,
                fn($(scans!(@int $at),)? *const c_char, *mut *mut *mut dirent, Choose, Order) -> c_int,
                $($at,)? path, list, choose, order
            )
            .unwrap_or_else(|| MinusOne::raw(Err(Errno::NOSYS)))
        }
    )*};
    (@at []) => { libc::AT_FDCWD };
    (@at [$at:ident]) => { $at };
    (@int $at:ident) => { c_int };
}

scans! {
    scandir [];
    scandir64 [];
    scandirat [at];
    scandirat64 [at];
}

/// The chosen entries in order, in memory that the program frees: each, and the list.
///
/// # Safety
/// `list` is writable, the functions may be called with entries.
unsafe fn scan(
    entries: &[dirent],
    list: *mut *mut *mut dirent,
    choose: Choose,
    order: Order,
) -> Outcome<c_int> {
    // SAFETY: by the caller's promise.
    let chosen = entries
        .iter()
        .filter(|entry| choose.is_none_or(|choose| unsafe { choose(*entry) } != 0));
    let chosen: Vec<&dirent> = chosen.collect();
    // SAFETY: malloc may be called at any time; what it returns is checked before it is written.
    unsafe {
        let room: *mut *mut dirent =
            libc::malloc(size_of::<*mut dirent>() * chosen.len().max(1)).cast();
        if room.is_null() {
            return Err(Errno(libc::ENOMEM));
        }
        for (index, entry) in chosen.iter().enumerate() {
            let copy: *mut dirent = libc::malloc(size_of::<dirent>()).cast();
            if copy.is_null() {
                return Err(Errno(libc::ENOMEM));
            }
            *copy = **entry;
            *room.add(index) = copy;
        }
        if let Some(order) = order {
            type Compare = unsafe extern "C" fn(*const c_void, *const c_void) -> c_int;
            let compare: Compare = std::mem::transmute(order);
            libc::qsort(
                room.cast(),
                chosen.len(),
                size_of::<*mut dirent>(),
                Some(compare),
            );
        }
        *list = room;
    }
    c_int::try_from(chosen.len()).map_err(|_| Errno(libc::EOVERFLOW))
}
