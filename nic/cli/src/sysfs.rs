//! `urxe run --sysfs`: the devices in `/sys` also for programs that ask the kernel without libc, as
//! all do that are written in Go.
//!
//! The program gets a mount namespace of its own, with copies of what `liburxe.so` shows at that
//! moment mounted where the kernel would have it. A folder of the kernel's that lacks an entry is
//! covered with one that has it, and all the kernel's entries.
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use rustix::io::Errno;
use rustix::mount::{self, MountFlags, MountPropagationFlags, UnmountFlags};
use rustix::thread::{UnshareFlags, unshare_unsafe};

const SYS: &str = "/sys";
const CLASS: &str = "class/infiniband";
/// The folders of links to what is ours, in `/sys`.
const LINKS: [&str; 4] = [
    CLASS,
    "class/infiniband_verbs",
    "class/pci_bus",
    "bus/pci/devices",
];
/// What all mounts here are: nothing in them is a program or a device.
const FLAGS: MountFlags = MountFlags::NOSUID
    .union(MountFlags::NODEV)
    .union(MountFlags::NOEXEC);

/// Mounts the devices that programs with `library` see, with these variables, which say what kind
/// of devices they are.
///
/// # Errors
/// When there can be no mount namespace, or nothing can be mounted in it.
pub(crate) fn mount(library: &Path, kind: &[(&str, &str)]) -> Result<()> {
    enter_namespace().context(
        "--sysfs needs a mount namespace, which is for root, or for all users where the kernel lets them make user namespaces \
         (kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns)",
    )?;
    let stage = std::env::temp_dir().join(format!("urxe-sysfs-{}", std::process::id()));
    fs::create_dir(&stage).with_context(|| format!("cannot make {}", stage.display()))?;
    let outcome = mount_from(&stage, library, kind);
    // The copies stay where they are mounted. Both fail where nothing was mounted or made.
    let _ = mount::unmount(&stage, UnmountFlags::DETACH);
    let _ = fs::remove_dir(&stage);
    outcome
}

fn mount_from(stage: &Path, library: &Path, kind: &[(&str, &str)]) -> Result<()> {
    mount_empty(stage)?;
    copy_as_seen_with(library, kind, stage)?;
    let mut covered = BTreeSet::new();
    let devices = names_in(&stage.join("devices"))?;
    let devices = devices.iter().map(|name| Path::new("devices").join(name));
    let places = LINKS.iter().map(PathBuf::from).chain(devices);
    for place in places {
        let copy = stage.join(&place);
        let target = Path::new(SYS).join(place);
        make_room(&target, &mut covered)
            .and_then(|()| mount::mount_bind(&copy, &target).map_err(Into::into))
            .with_context(|| format!("cannot mount {}", target.display()))?;
        close(&target)?;
    }
    covered.iter().try_for_each(|folder| close(folder))
}

/// Makes what is mounted here read-only, as the kernel's is for most users.
fn close(target: &Path) -> Result<()> {
    let flags = FLAGS | MountFlags::BIND | MountFlags::RDONLY;
    mount::mount_remount(target, flags, "")
        .with_context(|| format!("cannot make {} read-only", target.display()))
}

/// Enters a mount namespace of this process alone: with root's privileges, or else in a user
/// namespace in which the user is itself.
fn enter_namespace() -> Result<()> {
    // SAFETY: the namespace of mounts; this process has one thread.
    let entered = unsafe { unshare_unsafe(UnshareFlags::NEWNS) };
    match entered {
        Err(Errno::PERM) => {
            let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
            // SAFETY: as above.
            unsafe { unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNS) }?;
            let (user, group) = (user.as_raw(), group.as_raw());
            fs::write("/proc/self/setgroups", "deny")?;
            fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
            fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
        }
        other => other?,
    }
    let alone = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    Ok(mount::mount_change("/", alone)?)
}

fn mount_empty(target: &Path) -> Result<()> {
    mount::mount("urxe", target, "tmpfs", FLAGS, c"mode=0755")
        .with_context(|| format!("cannot mount a tmpfs at {}", target.display()))
}

/// Makes a folder exist: the next one above it that does is covered, unless it is in `covered`
/// already.
fn make_room(target: &Path, covered: &mut BTreeSet<PathBuf>) -> Result<()> {
    if target.is_dir() {
        return Ok(());
    }
    let above = target.ancestors().find(|path| path.is_dir());
    let above = above.context("there is no such folder")?;
    if !covered.contains(above) {
        cover(above)?;
        covered.insert(above.to_owned());
    }
    Ok(fs::create_dir_all(target)?)
}

/// Covers a folder with one that has the same entries and can have more.
fn cover(folder: &Path) -> Result<()> {
    let opened = fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_PATH | libc::O_DIRECTORY)
        .open(folder)?;
    // The way to what is below the mount.
    let below = PathBuf::from(format!("/proc/self/fd/{}", opened.as_raw_fd()));
    let names = names_in(folder)?;
    mount_empty(folder)?;
    for name in names {
        let (from, to) = (below.join(&name), folder.join(&name));
        let kind = from.symlink_metadata()?.file_type();
        if kind.is_symlink() {
            symlink(fs::read_link(&from)?, &to)?;
            continue;
        }
        if kind.is_dir() {
            fs::create_dir(&to)?;
        } else {
            fs::File::create(&to)?;
        }
        mount::mount_bind_recursive(&from, &to)?;
    }
    Ok(())
}

fn names_in(folder: &Path) -> Result<Vec<std::ffi::OsString>> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    entries.map(|entry| Ok(entry?.file_name())).collect()
}

/// Has a process with `library` copy what it sees.
fn copy_as_seen_with(library: &Path, kind: &[(&str, &str)], to: &Path) -> Result<()> {
    let mut command = Command::new("/proc/self/exe");
    command.envs(kind.iter().copied());
    let output = command
        .args([OsStr::new(COMMAND), to.as_os_str()])
        .env("LD_PRELOAD", library)
        .output()
        .context("cannot start the process that copies the devices")?;
    ensure!(
        output.status.success(),
        "cannot copy the devices in {SYS}: {}",
        String::from_utf8_lossy(&output.stderr).trim_end()
    );
    Ok(())
}

/// The command that copies, which is not for people.
pub(crate) const COMMAND: &str = "copy-sysfs";

/// Copies what is ours in `/sys`, and what shares a folder with it.
///
/// # Errors
/// When something cannot be read or written.
pub(crate) fn copy_all(to: &Path) -> Result<()> {
    let sys = Path::new(SYS);
    for place in LINKS {
        let copy = to.join(place);
        fs::create_dir_all(copy.parent().unwrap_or(to))?;
        copy_tree(&sys.join(place), &copy)?;
    }
    let devices = to.join("devices");
    fs::create_dir(&devices)?;
    for info in urxe_device::list()? {
        // ../../devices/BUS/FUNCTION/infiniband/NAME
        let link = fs::read_link(sys.join(CLASS).join(&info.name))?;
        let bus = link
            .iter()
            .nth(3)
            .with_context(|| format!("{} leads nowhere", info.name))?;
        let copy = devices.join(bus);
        if !copy.exists() {
            copy_tree(&sys.join("devices").join(bus), &copy)?;
        }
    }
    Ok(())
}

fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    let about = from.symlink_metadata()?;
    if about.is_symlink() {
        return Ok(symlink(fs::read_link(from)?, to)?);
    }
    if about.is_dir() {
        fs::create_dir(to)?;
        for name in names_in(from)? {
            copy_tree(&from.join(&name), &to.join(&name))?;
        }
    } else {
        // Files that have nothing to say are errors to read: in the copy they are empty.
        fs::write(to, fs::read(from).unwrap_or_default())?;
    }
    Ok(fs::set_permissions(to, about.permissions())?)
}
