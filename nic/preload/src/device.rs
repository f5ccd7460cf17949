//! The device list: ours, then those of the libibverbs behind us.
//!
//! A device of ours is made when it is first listed and stays for the life of the process, since
//! programs keep pointers to devices after they have freed the list.
use std::ffi::{c_char, c_int};

use urxe_device::{AcrossFork, Changes, DeviceInfo, Mutex};

use crate::abi::*;
use crate::errno::{Errno, Outcome};
use crate::handle::Handle;
use crate::next::{Next, call_next};
use crate::{kernel_files, kind, report, sysfs};

/// What a device is, as of the last listing. Looked at with the lock of [`DEVICES`], which a fork
/// waits for.
pub(crate) type DeviceState = Mutex<DeviceInfo>;
type Device = Handle<VerbsDevice, DeviceState>;

/// A device of ours; never freed.
#[derive(Clone, Copy)]
pub(crate) struct Listed(*mut VerbsDevice);

// SAFETY: the C part is written before it is listed and never after, the state is a mutex.
unsafe impl Send for Listed {}

impl Listed {
    fn state(self) -> &'static DeviceState {
        // SAFETY: made by `listed` and never freed.
        unsafe { Device::state(self.0) }
    }
}

/// All devices of ours.
pub(crate) static DEVICES: AcrossFork<Vec<Listed>> = AcrossFork::new(Vec::new());

/// The devices as of the last look, and the news since.
pub(crate) static LAST: AcrossFork<Option<(Changes, Vec<Listed>)>> = AcrossFork::new(None);

/// The devices there are now, looked up anew only when an interface has changed since the last
/// time: for programs that read one file after another.
pub(crate) fn current() -> Vec<DeviceInfo> {
    let mut last = LAST.lock();
    // A child process must not take the news from its parent.
    let is_known = last
        .as_ref()
        .is_some_and(|(changes, _)| changes.is_of_this_process() && !changes.has_changed());
    if !is_known {
        // Listening first: what changes meanwhile is found the next time.
        let changes = Changes::listen();
        let devices = refresh();
        let infos = infos(&devices);
        *last = changes.ok().map(|changes| (changes, devices));
        return infos;
    }
    last.as_ref()
        .map_or_else(Vec::new, |(_, devices)| infos(devices))
}

fn infos(devices: &[Listed]) -> Vec<DeviceInfo> {
    let _all = DEVICES.lock();
    devices
        .iter()
        .map(|device| device.state().lock().clone())
        .collect()
}

/// The devices there are now, made or brought up to date.
fn refresh() -> Vec<Listed> {
    report::start();
    let infos = urxe_device::list().unwrap_or_else(|error| {
        log::warn!("cannot list the network interfaces: {error}");
        Vec::new()
    });
    let mut known = DEVICES.lock();
    let (loopback, others): (Vec<_>, Vec<_>) =
        infos.into_iter().partition(|info| info.netdev == "lo");
    others
        .into_iter()
        .chain(loopback)
        .map(|info| listed(&mut known, info))
        .collect()
}

/// The device of `info` among the known ones, or a new one.
fn listed(known: &mut Vec<Listed>, info: DeviceInfo) -> Listed {
    for &device in known.iter() {
        let mut state = device.state().lock();
        if state.name == info.name && state.ifindex == info.ifindex {
            *state = info;
            return device;
        }
    }
    let device = Listed(Device::give(c_device(&info), Mutex::new(info)));
    known.push(device);
    device
}

/// The C part. Of its file names only the device's own folder can be read, see [`crate::sysfs`].
fn c_device(info: &DeviceInfo) -> VerbsDevice {
    let (node_type, transport_type) = kind::node(info.kind);
    let mut device = ibv_device {
        node_type,
        transport_type,
        ..ibv_device::default()
    };
    let uverbs = sysfs::uverbs_name(info);
    put(&mut device.name, &info.name);
    put(&mut device.dev_name, &uverbs);
    put(
        &mut device.dev_path,
        &format!("/sys/class/infiniband_verbs/{uverbs}"),
    );
    put(
        &mut device.ibdev_path,
        &format!("/sys/class/infiniband/{}", info.name),
    );
    VerbsDevice::new(device)
}

/// Writes `text` with its terminating zero into a field, cut to fit.
pub(crate) fn put(field: &mut [c_char], text: &str) {
    let room = field.len().saturating_sub(1);
    for (to, from) in field.iter_mut().zip(text.bytes().take(room).chain([0])) {
        *to = c_char::from_ne_bytes([from]);
    }
}

/// What the device of ours behind a pointer is.
///
/// # Safety
/// `device` is one of ours.
pub(crate) unsafe fn info(device: *mut ibv_device) -> DeviceInfo {
    // SAFETY: by the caller's promise; ours are never freed.
    let state: &DeviceState = unsafe { Device::state(device.cast()) };
    let _all = DEVICES.lock();
    state.lock().clone()
}

/// `ibv_get_device_name`.
///
/// # Safety
/// `device` is one of ours.
pub(crate) unsafe fn name(device: *mut ibv_device) -> Outcome<*mut c_char> {
    // SAFETY: by the caller's promise.
    Ok(unsafe { (&raw mut (*device).name).cast() })
}

/// `ibv_get_device_index`: the number of the network interface. libibverbs's are small numbers of
/// RDMA devices; ours are far from them.
///
/// # Safety
/// `device` is one of ours.
pub(crate) unsafe fn index(device: *mut ibv_device) -> Outcome<c_int> {
    // SAFETY: by the caller's promise.
    Ok(number(&unsafe { info(device) }))
}

/// What [`index`] says of a device.
pub(crate) fn number(info: &DeviceInfo) -> c_int {
    const FIRST: u32 = 0x0100_0000;
    (FIRST | info.ifindex & (FIRST - 1)).cast_signed()
}

/// `ibv_get_device_guid`, in network byte order.
///
/// # Safety
/// `device` is one of ours.
pub(crate) unsafe fn guid(device: *mut ibv_device) -> Outcome<u64> {
    // SAFETY: by the caller's promise.
    Ok(u64::from_ne_bytes(unsafe { info(device) }.guid))
}

/// A device list as C gets it: of malloc, as libibverbs's are, because qperf ends it with `free`.
/// Behind what C sees stand the next library's own list and the address of this one, for
/// [`free_list`]. Null if there is no memory.
fn give_list(next: *mut *mut ibv_device, devices: &[*mut ibv_device]) -> *mut *mut ibv_device {
    // SAFETY: calloc may be called with any size.
    let list: *mut *mut ibv_device =
        unsafe { libc::calloc(devices.len() + 3, size_of::<*mut ibv_device>()) }.cast();
    if !list.is_null() {
        // SAFETY: room for the devices, a null pointer, and two words more.
        unsafe {
            list.copy_from_nonoverlapping(devices.as_ptr(), devices.len());
            list.add(devices.len() + 1).write(next.cast());
            list.add(devices.len() + 2).write(list.cast());
        }
    }
    list
}

/// Every device: ours first, since a program that loads us wants them, loopback as the last of
/// ours.
///
/// # Safety
/// `num_devices` is null or writable.
pub(crate) unsafe fn list(num_devices: *mut c_int) -> *mut *mut ibv_device {
    static NEXT: Next = Next::verb(c"ibv_get_device_list", c"IBVERBS_1.1");
    let mut devices: Vec<*mut ibv_device> = refresh()
        .into_iter()
        .map(|device| device.0.cast())
        .collect();
    let saved = std::io::Error::last_os_error();
    let mut count: c_int = 0;
    // It looks through the folders where ours would be, too.
    let next = kernel_files::without_ours(|| {
        call_next!(NEXT, fn(*mut c_int) -> *mut *mut ibv_device, &raw mut count)
    })
    .unwrap_or(std::ptr::null_mut());
    if next.is_null() {
        // No kernel support, say. That is no failure here.
        Errno::of(&saved).set();
    } else {
        let count = usize::try_from(count).unwrap_or(0);
        // SAFETY: libibverbs returned an array of this many devices.
        devices.extend(unsafe { std::slice::from_raw_parts(next, count) });
    }
    if !num_devices.is_null() {
        // SAFETY: by the caller's promise.
        unsafe { *num_devices = c_int::try_from(devices.len()).unwrap_or(c_int::MAX) };
    }
    give_list(next, &devices)
}

/// Frees a list of [`list`].
///
/// # Safety
/// `list` is null or came from [`list`].
pub(crate) unsafe fn free_list(list: *mut *mut ibv_device) {
    static NEXT: Next = Next::verb(c"ibv_free_device_list", c"IBVERBS_1.1");
    if list.is_null() {
        return;
    }
    // SAFETY: the list ends with a null pointer, and two words of `give_list` follow that. Should a
    // program have shortened it, they are entries: the second is not its address then, and the next
    // library's list is left.
    let next: *mut *mut ibv_device = unsafe {
        let mut end = list;
        while !(*end).is_null() {
            end = end.add(1);
        }
        let is_whole = *end.add(2) == list.cast();
        let next = if is_whole {
            (*end.add(1)).cast()
        } else {
            std::ptr::null_mut()
        };
        libc::free(list.cast());
        next
    };
    if !next.is_null() {
        call_next!(NEXT, fn(*mut *mut ibv_device) -> (), next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_hold_text_and_always_end() {
        let char = |byte: u8| c_char::from_ne_bytes([byte]);
        let mut field = [char(b'x'); 6];
        put(&mut field, "lo");
        assert_eq!(field[..3], [b'l', b'o', 0].map(char));
        put(&mut field, "much too long");
        assert_eq!(field, *b"much \0".map(char).as_slice());
    }

    #[test]
    fn lists_end_with_null_and_can_be_freed() {
        let mut device = ibv_device::default();
        let list = give_list(std::ptr::null_mut(), &[&raw mut device]);
        // SAFETY: two words are there, and no code uses the lists after.
        unsafe {
            assert_eq!(*list, &raw mut device);
            assert!((*list.add(1)).is_null());
            free_list(list);
            free_list(std::ptr::null_mut());
            // As qperf does.
            libc::free(give_list(std::ptr::null_mut(), &[&raw mut device]).cast());
        }
    }
}
