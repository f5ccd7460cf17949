//! Listing folders: opendir, readdir and their relatives of libc. A folder that is ours, or that our
//! devices share with real ones, is listed into memory when it is opened; a program holds a pointer to
//! that list in place of libc's.
use std::collections::BTreeSet;
use std::ffi::{CStr, CString, c_char, c_int, c_long, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use libc::{DIR, dirent};
use parking_lot::Mutex;

use crate::errno::{Convention, Errno, MinusOne, Outcome, Pointer};
use crate::files::{self, text, text_at};
use crate::next::{Next, c_name, call_next};
use crate::paths::inode;
use crate::sysfs::Node;
use crate::tree::{self, Place};

/// An open folder. Programs know it by its address.
struct Folder {
    entries: Vec<dirent>,
    position: usize,
    /// The descriptor that stands for it.
    fd: c_int,
}

/// The addresses of all open folders of ours, and how many there are: while there is none, libc's own
/// need no lookup.
static OPEN: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());
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

/// The entries of the folder at `path`, if it is ours or shared.
fn entries(path: &str) -> Option<Outcome<Vec<dirent>>> {
    let is_shared = match tree::lookup(path, true)? {
        Ok(Place::Shared) => true,
        Ok(Place::Sysfs(Node::Folder)) => false,
        Ok(_) => return Some(Err(Errno(libc::ENOTDIR))),
        Err(errno) => return Some(Err(errno)),
    };
    let mut names: BTreeSet<String> = [".".to_owned(), "..".to_owned()].into();
    names.extend(tree::list(path));
    if is_shared {
        names.extend(real_names(path));
    }
    let entries = names
        .iter()
        .map(|name| entry(path, name))
        .collect::<Vec<_>>();
    Some(Ok(entries))
}

fn entry(folder: &str, name: &str) -> dirent {
    let path = format!("{folder}/{name}");
    // SAFETY: all zeros is a valid dirent.
    let mut entry: dirent = unsafe { std::mem::zeroed() };
    entry.d_ino = inode(&tree::canonical(&path));
    entry.d_reclen = size_of::<dirent>().try_into().unwrap_or(u16::MAX);
    entry.d_type = match tree::lookup(&path, false) {
        Some(Ok(Place::Shared | Place::Sysfs(Node::Folder))) => libc::DT_DIR,
        Some(Ok(Place::Sysfs(Node::Link(_)) | Place::Class(_))) => libc::DT_LNK,
        Some(Ok(Place::Sysfs(Node::File(_)) | Place::AbiVersion)) => libc::DT_REG,
        Some(Ok(Place::Character(_))) => libc::DT_CHR,
        _ if matches!(name, "." | "..") => libc::DT_DIR,
        _ => libc::DT_UNKNOWN,
    };
    crate::device::put(&mut entry.d_name, name);
    entry
}

/// The names that the real folder has.
fn real_names(path: &str) -> Vec<String> {
    static OPEN: Next = Next::libc(c"opendir");
    static READ: Next = Next::libc(c"readdir");
    static CLOSE: Next = Next::libc(c"closedir");
    let mut names = Vec::new();
    let Ok(path) = CString::new(path) else {
        return names;
    };
    let folder = call_next!(OPEN, fn(*const c_char) -> *mut DIR, path.as_ptr());
    let Some(folder) = folder.filter(|folder| !folder.is_null()) else {
        return names;
    };
    while let Some(entry) = call_next!(READ, fn(*mut DIR) -> *mut dirent, folder)
        && !entry.is_null()
    {
        // SAFETY: libc's entry is valid until the next call, and its name is a string.
        let name = unsafe { CStr::from_ptr((&raw const (*entry).d_name).cast()) };
        names.push(name.to_string_lossy().into_owned());
    }
    call_next!(CLOSE, fn(*mut DIR) -> c_int, folder);
    names
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
    static NEXT: Next = Next::libc(c"opendir");
    // SAFETY: by the caller's promise.
    let opened = unsafe { text(path) }.and_then(|path| {
        let entries = entries(path)?;
        Some(entries.and_then(|entries| {
            let fd = files::open_folder(path)?;
            Ok(give(entries, fd))
        }))
    });
    match opened {
        Some(opened) => Pointer::raw(opened),
        None => call_next!(NEXT, fn(*const c_char) -> *mut DIR, path)
            .unwrap_or_else(|| Pointer::raw(Err(Errno::NOSYS))),
    }
}

/// `fdopendir` of libc: the folder owns the descriptor from then on.
///
/// # Safety
/// As its manual page says.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn fdopendir(fd: c_int) -> *mut DIR {
    static NEXT: Next = Next::libc(c"fdopendir");
    match files::folder_path(fd).and_then(|path| entries(&path)) {
        Some(entries) => Pointer::raw(entries.map(|entries| give(entries, fd))),
        None => call_next!(NEXT, fn(c_int) -> *mut DIR, fd)
            .unwrap_or_else(|| Pointer::raw(Err(Errno::NOSYS))),
    }
}

/// What a program passes to scandir to choose entries, and to order them.
type Choose = Option<unsafe extern "C" fn(*const dirent) -> c_int>;
type Order = Option<unsafe extern "C" fn(*mut *const dirent, *mut *const dirent) -> c_int>;

/// Interposes the forms of scandir.
macro_rules! scans {
    ($($name:ident [$($at:ident: $at_ty:ty)?] path = $text:expr;)*) => {$(
        #[doc = concat!("`", stringify!($name), "` of libc.")]
        ///
        /// # Safety
        /// As its manual page says.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name(
            $($at: $at_ty,)? path: *const c_char, list: *mut *mut *mut dirent, choose: Choose, order: Order,
        ) -> c_int {
            static NEXT: Next = Next::libc(c_name!(stringify!($name)));
            // SAFETY: by the caller's promise.
            let path_text: Option<String> = unsafe { $text($($at,)? path) };
            match path_text.and_then(|path| entries(&path)) {
                // SAFETY: by the caller's promise.
                Some(entries) => MinusOne::raw(entries.and_then(|entries| unsafe { scan(&entries, list, choose, order) })),
                None => call_next!(
                    NEXT,
                    fn($($at_ty,)? *const c_char, *mut *mut *mut dirent, Choose, Order) -> c_int,
                    $($at,)? path, list, choose, order
                )
                .unwrap_or_else(|| MinusOne::raw(Err(Errno::NOSYS))),
            }
        }
    )*};
}

/// # Safety
/// The path is null or a string.
unsafe fn plain(path: *const c_char) -> Option<String> {
    // SAFETY: by the caller's promise.
    unsafe { text(path) }.map(str::to_owned)
}

/// # Safety
/// The path is null or a string.
unsafe fn from_folder(at: c_int, path: *const c_char) -> Option<String> {
    // SAFETY: by the caller's promise.
    unsafe { text_at(at, path) }
}

scans! {
    scandir [] path = plain;
    scandir64 [] path = plain;
    scandirat [at: c_int] path = from_folder;
    scandirat64 [at: c_int] path = from_folder;
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
