//! Which of the paths that programs name lead to something of ours ([`sysfs`]), as the kernel would
//! walk them: a link is followed before what comes after it, `..` included.
use std::ffi::{CStr, CString, c_char, c_int};

use crate::device;
use crate::errno::Errno;
use crate::kernel_files::{is_really_there, passes_through};
use crate::next::{Next, call_next};
use crate::sysfs::{self, Node};
use crate::{descriptors, working_folder};

/// What a path leads to.
#[derive(Clone, Debug)]
pub(crate) enum Found {
    /// Nothing of ours, but perhaps something of the kernel's: at this path, if not at the same.
    Elsewhere(Option<String>),
    /// This, and its path without links.
    Ours(String, Node),
    /// Nothing.
    Missing(Errno),
}

/// What to do with a path that a program names.
#[derive(Debug)]
pub(crate) enum Route {
    /// The kernel has to do with it.
    Kernel,
    /// The kernel has to do with this one instead.
    Instead(CString),
    /// We have: the path without links, and what there is.
    Ours(String, Node),
    /// There is no such thing.
    Failed(Errno),
}

/// Everything of ours has one of these in its path, shared folders apart.
const MARKS: [&[u8]; 3] = [b"infiniband", b"urxe_", sysfs::MARK.as_bytes()];
/// Everything of ours is in one of these.
const ROOTS: [&[u8]; 2] = [b"sys", b"dev"];
/// As many links as the kernel follows (`MAXSYMLINKS`).
const MOST_LINKS: usize = 40;

fn has_mark(path: &[u8]) -> bool {
    let has = |mark: &&[u8]| {
        // SAFETY: both are readable for their length. It is libc's, for every relative path comes
        // by here.
        let found = unsafe {
            libc::memmem(
                path.as_ptr().cast(),
                path.len(),
                mark.as_ptr().cast(),
                mark.len(),
            )
        };
        !found.is_null()
    };
    MARKS.iter().any(has)
}

/// Whether an absolute path may be one of ours: cheap, for it runs on every file that a program
/// names.
pub(crate) fn may_be_ours(path: &[u8]) -> bool {
    let begin = path.iter().take_while(|byte| **byte == b'/').count();
    let inside = &path[begin..];
    let is_below = |root: &&[u8]| {
        inside
            .strip_prefix(*root)
            .is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
    };
    begin > 0
        && ROOTS.iter().any(is_below)
        && !passes_through()
        && (has_mark(inside) || is_shared(path))
}

/// Whether a path names a shared folder.
fn is_shared(path: &[u8]) -> bool {
    // A slash or two too many.
    const ROOM: usize = 4;
    path.len() <= sysfs::LONGEST_SHARED + ROOM
        && str::from_utf8(path).is_ok_and(|path| sysfs::is_shared(&names_of(path)))
}

/// The names in a path without links, without empty ones.
fn names_of(path: &str) -> Vec<&str> {
    path.split('/').filter(|name| !name.is_empty()).collect()
}

/// What there is at an absolute path. A link at its end is followed if so asked.
pub(crate) fn lookup(path: &str, follows: bool) -> Found {
    if may_be_ours(path.as_bytes()) {
        walk(path, follows, false)
    } else {
        Found::Elsewhere(None)
    }
}

/// The same for any path. `is_made` says that the program named another one, which the kernel
/// cannot follow.
fn walk(path: &str, follows: bool, mut is_made: bool) -> Found {
    let devices = device::current();
    let node = |at: &[String]| {
        let names: Vec<&str> = at.iter().map(String::as_str).collect();
        sysfs::node(&devices, &names)
    };
    let mut at: Vec<String> = Vec::new();
    // What is still to walk, the next name last.
    let mut rest: Vec<String> = path.split('/').rev().map(str::to_owned).collect();
    let mut links = 0;
    while let Some(name) = rest.pop() {
        match name.as_str() {
            "" | "." => continue,
            ".." => {
                at.pop();
                continue;
            }
            _ => at.push(name),
        }
        match node(&at) {
            Some(Node::Link(target)) if follows || !rest.is_empty() => {
                links += 1;
                if links > MOST_LINKS {
                    return Found::Missing(Errno(libc::ELOOP));
                }
                at.pop();
                rest.extend(target.split('/').rev().map(str::to_owned));
                is_made = true;
            }
            Some(Node::Folder) => is_made = true,
            Some(Node::Shared) => {}
            Some(found) if rest.is_empty() => return Found::Ours(joined(&at), found),
            Some(_) => return Found::Missing(Errno(libc::ENOTDIR)),
            None if node(&at[..at.len() - 1]) == Some(Node::Folder) => {
                return Found::Missing(Errno(libc::ENOENT));
            }
            // The kernel's, from here on: unless a `..` leads back.
            None => {
                let leads_back = rest.iter().any(|name| name == "..");
                let resolved = leads_back.then(|| resolve(&joined(&at))).flatten();
                let Some(resolved) = resolved else {
                    rest.push(joined(&at));
                    let path = rest.iter().rev().map(String::as_str);
                    return Found::Elsewhere(is_made.then(|| path.collect::<Vec<_>>().join("/")));
                };
                at = names_of(&resolved).into_iter().map(str::to_owned).collect();
                is_made = true;
            }
        }
    }
    let path = joined(&at);
    match node(&at) {
        Some(found) => Found::Ours(path, found),
        None => Found::Elsewhere(is_made.then_some(path)),
    }
}

fn joined(names: &[String]) -> String {
    format!("/{}", names.join("/"))
}

/// The path of something of the kernel's, without links.
fn resolve(path: &str) -> Option<String> {
    static NEXT: Next = Next::libc(c"realpath");
    let path = CString::new(path).ok()?;
    let mut room = vec![0u8; libc::PATH_MAX as usize];
    let found = call_next!(
        NEXT,
        fn(*const c_char, *mut c_char) -> *mut c_char,
        path.as_ptr(),
        room.as_mut_ptr().cast()
    )?;
    if found.is_null() {
        return None;
    }
    let path = CStr::from_bytes_until_nul(&room).ok()?;
    path.to_str().ok().map(str::to_owned)
}

/// Our names in the folder at `path`, which has no links in it.
pub(crate) fn list(path: &str) -> Vec<String> {
    sysfs::names(&device::current(), &names_of(path))
}

/// What is at a path without links.
pub(crate) fn at(path: &str) -> Option<Node> {
    sysfs::node(&device::current(), &names_of(path))
}

/// An absolute path, and whether it is not what the program named.
type Absolute = (String, bool);

/// The absolute path of what a program names from the open folder `at`, if it may be ours.
///
/// # Safety
/// `path` is null or a string.
unsafe fn absolute(at: c_int, path: *const c_char) -> Option<Absolute> {
    if path.is_null() {
        return None;
    }
    // SAFETY: by the caller's promise.
    let path = unsafe { CStr::from_ptr(path) };
    let bytes = path.to_bytes();
    if bytes.first() == Some(&b'/') {
        return may_be_ours(bytes).then(|| Some((path.to_str().ok()?.to_owned(), false)))?;
    }
    if bytes.is_empty() || passes_through() {
        return None;
    }
    let (base, is_ours) = base(at, has_mark(bytes))?;
    let path = format!("{base}/{}", path.to_str().ok()?);
    (is_ours || may_be_ours(path.as_bytes())).then_some((path, is_ours))
}

/// The folder that relative paths begin in, and whether it is ours. Where the kernel knows it, it
/// is only asked if so wanted.
fn base(at: c_int, asks_the_kernel: bool) -> Option<Absolute> {
    let ours = if at == libc::AT_FDCWD {
        working_folder::ours()
    } else {
        descriptors::folder(at)
    };
    if let Some(ours) = ours {
        return Some((ours, true));
    }
    let real = || {
        if at == libc::AT_FDCWD {
            working_folder::real()
        } else {
            descriptors::link_of(at)
        }
    };
    Some((asks_the_kernel.then(real)??, false))
}

/// What to do with a path that a program names from the open folder `at`.
///
/// # Safety
/// `path` is null or a string.
pub(crate) unsafe fn route(at: c_int, path: *const c_char, follows: bool) -> Route {
    // SAFETY: by the caller's promise.
    let Some((path, is_made)) = (unsafe { absolute(at, path) }) else {
        return Route::Kernel;
    };
    let instead = |path: String| CString::new(path).map_or(Route::Kernel, Route::Instead);
    match walk(&path, follows, is_made) {
        Found::Elsewhere(None) => Route::Kernel,
        Found::Elsewhere(Some(path)) => instead(path),
        Found::Ours(path, Node::Shared) if is_really_there(&path) => instead(path),
        Found::Ours(path, node) => Route::Ours(path, node),
        Found::Missing(errno) => Route::Failed(errno),
    }
}

/// A folder to list.
#[derive(Debug)]
pub(crate) enum Listed {
    /// It is ours, or shared: its path without links.
    Ours(String),
    /// It is the kernel's, at another path than the program named.
    Instead(CString),
    /// There is none.
    Failed(Errno),
}

/// The folder that a program wants to list, unless it is the kernel's and has nothing of ours.
///
/// # Safety
/// `path` is null or a string.
pub(crate) unsafe fn route_to_list(at: c_int, path: *const c_char) -> Option<Listed> {
    // SAFETY: by the caller's promise.
    let (path, is_made) = match unsafe { absolute(at, path) } {
        Some(found) => found,
        None => {
            // SAFETY: by the caller's promise.
            let text = unsafe { (!path.is_null()).then(|| CStr::from_ptr(path)) }?
                .to_str()
                .ok()?;
            if text.is_empty() || text.starts_with('/') || passes_through() {
                return None;
            }
            // A relative name of a shared folder has no mark.
            let path = format!("{}/{text}", base(at, true)?.0);
            (may_be_ours(path.as_bytes())).then_some((path, false))?
        }
    };
    Some(match walk(&path, true, is_made) {
        Found::Elsewhere(None) => return None,
        Found::Elsewhere(Some(path)) => Listed::Instead(CString::new(path).ok()?),
        Found::Ours(path, Node::Folder | Node::Shared) => Listed::Ours(path),
        Found::Ours(..) => Listed::Failed(Errno(libc::ENOTDIR)),
        Found::Missing(errno) => Listed::Failed(errno),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elsewhere(path: &str) -> bool {
        matches!(lookup(path, true), Found::Elsewhere(None))
    }

    /// Where the loopback interface's device is, or None if there is none.
    fn loopback() -> Option<String> {
        match lookup("/sys/class/infiniband/urxe_lo", true) {
            Found::Ours(path, Node::Folder) => Some(path),
            _ => {
                eprintln!("skipped: the loopback interface has no address");
                None
            }
        }
    }

    #[test]
    fn other_paths_are_left_alone() {
        for path in [
            "",
            "relative",
            "/sys/class/infiniband/mlx5_0/node_type",
            "/sys/class/infiniband_mad/umad0",
            "/sys/class/net/eth0/mtu",
            "/system/infiniband",
            "/dev/infiniband/uverbs0",
            "/dev/infiniband/rdma_cm",
            "/etc/passwd",
        ] {
            assert!(elsewhere(path), "{path}");
        }
    }

    #[test]
    fn paths_are_walked_as_the_kernel_walks_them() {
        let Some(device) = loopback() else { return };
        let function = device.rsplitn(3, '/').last().unwrap();
        let leads_to = |path: &str, to: &str| match lookup(path, true) {
            Found::Ours(found, _) | Found::Elsewhere(Some(found)) => {
                assert_eq!(found, to, "{path}")
            }
            other => panic!("{path}: {other:?}"),
        };
        let class = "/sys/class/infiniband/urxe_lo";
        leads_to("/sys//class/./infiniband/", "/sys/class/infiniband");
        leads_to("/sys/class/../class/infiniband", "/sys/class/infiniband");
        leads_to(
            &format!("{class}/ports/../ports/1"),
            &format!("{device}/ports/1"),
        );
        // Not /sys/class: `..` is what the link leads to.
        leads_to(&format!("{class}/../.."), function);
        leads_to(&format!("{class}/device"), function);
        leads_to(
            &format!("{class}/device/net/../infiniband/urxe_lo/subsystem"),
            "/sys/class/infiniband",
        );
        leads_to(
            &format!("{class}/subsystem/../net/lo/mtu"),
            "/sys/class/net/lo/mtu",
        );
        assert!(matches!(
            lookup(class, false),
            Found::Ours(_, Node::Link(_))
        ));
        assert!(matches!(
            lookup(&format!("{class}/"), false),
            Found::Ours(_, Node::Folder)
        ));
        let missing = |path: &str| match lookup(&format!("{class}/{path}"), true) {
            Found::Missing(errno) => errno.0,
            other => panic!("{path}: {other:?}"),
        };
        assert_eq!(missing("nonsense"), libc::ENOENT);
        assert_eq!(missing("nonsense/../node_guid"), libc::ENOENT);
        assert_eq!(missing("node_guid/x"), libc::ENOTDIR);
        assert_eq!(missing("node_guid/"), libc::ENOTDIR);
    }

    #[test]
    fn every_listed_name_is_there_and_folders_list_something() {
        fn walk(path: &str) -> usize {
            let names = list(path);
            assert!(!names.is_empty(), "{path}");
            let each = |name: &String| {
                let path = format!("{path}/{name}");
                match at(&path) {
                    Some(Node::Folder | Node::Shared) => walk(&path),
                    Some(Node::Link(_)) => {
                        let found = lookup(&path, true);
                        let is_folder =
                            matches!(found, Found::Ours(_, Node::Folder | Node::Shared));
                        let is_real = matches!(found, Found::Elsewhere(Some(_)));
                        assert!(is_folder || is_real, "{path}: {found:?}");
                        1
                    }
                    Some(_) => 1,
                    None => panic!("{path} is listed and not there"),
                }
            };
            names.iter().map(each).sum()
        }
        if loopback().is_none() {
            return;
        }
        let count = walk("/sys") + walk("/dev");
        assert!(count > 250, "{count}");
    }

    #[test]
    fn nothing_is_ours_while_the_next_library_looks() {
        crate::kernel_files::without_ours(|| assert!(elsewhere("/sys/class/infiniband")));
        assert!(!elsewhere("/sys/class/infiniband"));
    }
}
