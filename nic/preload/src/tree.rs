//! The part of the file system that a kernel with our devices would have, beside what the real one has:
//!
//! | path | what |
//! |---|---|
//! | `/sys/class/infiniband/<device>` | a link to the next |
//! | `/sys/devices/virtual/infiniband/<device>` | what the device is ([`sysfs`]) |
//! | `/sys/class/infiniband_verbs/uverbs_<device>` | a link to the next |
//! | `/sys/devices/virtual/infiniband_verbs/uverbs_<device>` | its character device |
//! | `/dev/infiniband/uverbs_<device>` | the character device, which cannot be opened |
//!
//! The folders that hold these are shared with real devices.
use std::cell::Cell;

use urxe_device::DeviceInfo;

use crate::device;
use crate::errno::{Errno, Outcome};
use crate::sysfs::{self, Node, device_names, device_node, uverbs_name, verbs_node};

/// What a path of ours names.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// One of the folders shared with real devices.
    Shared,
    /// Something in a device's folder.
    Sysfs(Node),
    /// A link to a device's folder.
    Class(String),
    /// A character device, by its minor number.
    Character(u32),
    /// The version of the verbs interface to the kernel, where there is no real one.
    AbiVersion,
}

/// A folder that real devices have entries in, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shared {
    ClassInfiniband,
    ClassVerbs,
    VirtualInfiniband,
    VirtualVerbs,
    Dev,
}

/// Every path of ours starts with one of these. Compared for every file that a program names.
const ROOTS: [&[u8]; 3] = [
    b"/sys/class/infiniband",
    b"/sys/devices/virtual/infiniband",
    b"/dev/infiniband",
];

/// Whether a path may be one of ours: cheap, for it runs on every file that a program names.
pub(crate) fn may_be_ours(path: &[u8]) -> bool {
    path.first() == Some(&b'/')
        && ROOTS.iter().any(|root| path.starts_with(root))
        && !PASSES_THROUGH.get()
}

/// The same for a path that begins at the root without saying so.
pub(crate) fn may_be_ours_from_root(path: &[u8]) -> bool {
    ROOTS.iter().any(|root| path.starts_with(&root[1..])) && !PASSES_THROUGH.get()
}

thread_local! {
    static PASSES_THROUGH: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is in [`without_ours`].
pub(crate) fn passes_through() -> bool {
    PASSES_THROUGH.get()
}

/// Runs `f` with nothing of ours in the file system: the libibverbs behind us must not take our devices
/// for the kernel's.
pub(crate) fn without_ours<T>(f: impl FnOnce() -> T) -> T {
    let before = PASSES_THROUGH.replace(true);
    let result = f();
    PASSES_THROUGH.set(before);
    result
}

impl Shared {
    const ALL: [(Self, &'static [&'static str]); 5] = [
        (Self::ClassInfiniband, &["sys", "class", "infiniband"]),
        (Self::ClassVerbs, &["sys", "class", "infiniband_verbs"]),
        (
            Self::VirtualInfiniband,
            &["sys", "devices", "virtual", "infiniband"],
        ),
        (
            Self::VirtualVerbs,
            &["sys", "devices", "virtual", "infiniband_verbs"],
        ),
        (Self::Dev, &["dev", "infiniband"]),
    ];

    fn is_verbs(self) -> bool {
        !matches!(self, Self::ClassInfiniband | Self::VirtualInfiniband)
    }

    /// The names that our devices have in it.
    fn names(self) -> Vec<String> {
        let devices = device::names().into_iter();
        let mut names: Vec<String> = if self.is_verbs() {
            devices.map(|name| uverbs_name(&name)).collect()
        } else {
            devices.collect()
        };
        if self == Self::ClassVerbs {
            names.push("abi_version".to_owned());
        }
        names
    }

    /// What the name in it stands for, and the device, if it is one of ours.
    fn device(self, name: &str) -> Option<DeviceInfo> {
        let name = if self.is_verbs() {
            name.strip_prefix("uverbs_")?
        } else {
            name
        };
        name.starts_with("urxe_").then(|| device::named(name))?
    }
}

/// The names on the way to `path`, without `.`, `..` and empty ones.
fn names_of(path: &str) -> Vec<&str> {
    let mut names = Vec::new();
    for name in path.split('/') {
        match name {
            "" | "." => {}
            ".." => {
                names.pop();
            }
            name => names.push(name),
        }
    }
    names
}

/// The shared folder that `names` leads into, and the names after it.
fn split<'a, 'b>(names: &'a [&'b str]) -> Option<(Shared, &'a [&'b str])> {
    Shared::ALL
        .into_iter()
        .find_map(|(shared, root)| Some((shared, names.strip_prefix(root)?)))
}

/// What there is at an absolute path: `None` is not ours. A link at its end is followed if so asked.
pub(crate) fn lookup(path: &str, follows: bool) -> Option<Outcome<Place>> {
    if !may_be_ours(path.as_bytes()) {
        return None;
    }
    let names = names_of(path);
    let (shared, inside) = split(&names)?;
    let Some((name, rest)) = inside.split_first() else {
        return Some(Ok(Place::Shared));
    };
    if shared == Shared::ClassVerbs && inside == ["abi_version"] {
        return Some(Ok(Place::AbiVersion));
    }
    let is_class = matches!(shared, Shared::ClassInfiniband | Shared::ClassVerbs);
    let Some(info) = shared.device(name) else {
        // A name that could only be ours is not there; another one may be a real device's.
        let bare = name.strip_prefix("uverbs_").unwrap_or(name);
        return bare
            .starts_with("urxe_")
            .then_some(Err(Errno(libc::ENOENT)));
    };
    // "device/" is the folder, also without `follows`: what a slash ends is not a link.
    if is_class && rest.is_empty() && !follows && !path.ends_with('/') {
        let kind = if shared.is_verbs() {
            "infiniband_verbs"
        } else {
            "infiniband"
        };
        let target = format!("../../devices/virtual/{kind}/{name}");
        return Some(Ok(Place::Class(target)));
    }
    let found = match shared {
        Shared::Dev => rest
            .is_empty()
            .then(|| Place::Character(sysfs::minor(&info))),
        Shared::ClassVerbs | Shared::VirtualVerbs => verbs_node(&info, rest).map(Place::Sysfs),
        _ => device_node(&info, rest).map(Place::Sysfs),
    };
    let found = found.ok_or(Errno(libc::ENOENT));
    Some(match found {
        // The only links inside are those to the class.
        Ok(Place::Sysfs(Node::Link(_))) if follows => Ok(Place::Shared),
        found => found,
    })
}

/// The path without links, as realpath(3) gives it. `path` is there.
pub(crate) fn canonical(path: &str) -> String {
    let names = names_of(path);
    match split(&names) {
        Some((_, [_, .., "subsystem"])) if names.contains(&"infiniband_verbs") => {
            "/sys/class/infiniband_verbs".to_owned()
        }
        Some((_, [_, .., "subsystem"])) => "/sys/class/infiniband".to_owned(),
        Some((Shared::ClassInfiniband, inside @ [_, ..])) => {
            format!("/sys/devices/virtual/infiniband/{}", inside.join("/"))
        }
        Some((Shared::ClassVerbs, inside @ [name, ..])) if *name != "abi_version" => {
            format!("/sys/devices/virtual/infiniband_verbs/{}", inside.join("/"))
        }
        _ => format!("/{}", names.join("/")),
    }
}

/// Our names in the folder at `path`, which is there.
pub(crate) fn list(path: &str) -> Vec<String> {
    let names = names_of(path);
    let Some((shared, inside)) = split(&names) else {
        return Vec::new();
    };
    let Some((name, rest)) = inside.split_first() else {
        return shared.names();
    };
    match shared.device(name) {
        None => Vec::new(),
        Some(_) if shared.is_verbs() => {
            let names = sysfs::VERBS_NAMES.iter();
            names.map(|name| (*name).to_owned()).collect()
        }
        Some(info) => device_names(&info, rest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_paths_are_left_alone() {
        for path in [
            "",
            "relative",
            "/sys/class/infiniband/mlx5_0/node_type",
            "/sys/class/infiniband_mad/umad0",
            "/sys/class/infiniband/../net/eth0",
            "/dev/infiniband/uverbs0",
            "/dev/infiniband/rdma_cm",
            "/etc/passwd",
        ] {
            assert!(lookup(path, true).is_none(), "{path}");
        }
    }

    #[test]
    fn names_are_walked_like_the_kernel_does() {
        let path = "/sys//class/./x/../infiniband/";
        assert_eq!(names_of(path), ["sys", "class", "infiniband"]);
        assert_eq!(
            canonical("/sys/class/infiniband/urxe_x/ports/1"),
            "/sys/devices/virtual/infiniband/urxe_x/ports/1"
        );
        assert_eq!(
            canonical("/sys/class/infiniband_verbs/uverbs_urxe_x/subsystem"),
            "/sys/class/infiniband_verbs"
        );
        let shared = lookup("/sys/class/infiniband", true).unwrap().unwrap();
        assert!(matches!(shared, Place::Shared));
    }

    #[test]
    fn every_listed_name_is_there_and_folders_list_something() {
        fn walk(path: &str) -> usize {
            let found = lookup(path, false).unwrap().unwrap();
            match found {
                Place::Shared | Place::Sysfs(Node::Folder) => {
                    let names = list(path);
                    assert!(!names.is_empty(), "{path}");
                    names
                        .iter()
                        .map(|name| walk(&format!("{path}/{name}")))
                        .sum()
                }
                _ => 1,
            }
        }
        // Loopback at least has an address, or there are no devices.
        if device::names().is_empty() {
            eprintln!("skipped: no network interface has an address");
            return;
        }
        let count: usize = Shared::ALL
            .iter()
            .map(|(_, names)| walk(&format!("/{}", names.join("/"))))
            .sum();
        assert!(count > 50, "{count}");
    }

    #[test]
    fn nothing_is_ours_while_the_next_library_looks() {
        without_ours(|| assert!(lookup("/sys/class/infiniband", true).is_none()));
        assert!(lookup("/sys/class/infiniband", true).is_some());
    }
}
