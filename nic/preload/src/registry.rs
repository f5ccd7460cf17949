//! The objects of a context that asynchronous events name.
use std::collections::HashMap;

use urxe_device::{Mutex, MutexGuard};

use crate::abi::*;

/// See the module: by what the device knows them by.
#[derive(Default)]
pub(crate) struct Registry(Mutex<Objects>);

#[derive(Default)]
pub(crate) struct Objects {
    pub(crate) queues: HashMap<u64, *mut ibv_cq>,
    /// Of an XRC target all handles, the first of which its events name.
    pub(crate) pairs: HashMap<u32, Vec<*mut ibv_qp>>,
    pub(crate) shared: HashMap<u32, *mut ibv_srq>,
}

// SAFETY: the pointers are only used while the map is locked, and destroying an object removes it.
unsafe impl Send for Objects {}

impl Registry {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Objects> {
        self.0.lock()
    }

    pub(crate) fn add_cq(&self, cookie: u64, cq: *mut ibv_cq) {
        self.lock().queues.insert(cookie, cq);
    }

    pub(crate) fn forget_cq(&self, cookie: u64) {
        self.lock().queues.remove(&cookie);
    }

    pub(crate) fn add_qp(&self, number: u32, qp: *mut ibv_qp) {
        self.lock().pairs.entry(number).or_default().push(qp);
    }

    pub(crate) fn forget_qp(&self, number: u32, qp: *mut ibv_qp) {
        let mut objects = self.lock();
        if let Some(handles) = objects.pairs.get_mut(&number) {
            handles.retain(|handle| *handle != qp);
            if handles.is_empty() {
                objects.pairs.remove(&number);
            }
        }
    }

    pub(crate) fn add_srq(&self, number: u32, srq: *mut ibv_srq) {
        self.lock().shared.insert(number, srq);
    }

    pub(crate) fn forget_srq(&self, number: u32) {
        self.lock().shared.remove(&number);
    }

    /// What `f` makes of the queue pair with this number, if there is one.
    pub(crate) fn with_qp<T>(&self, number: u32, f: impl FnOnce(*mut ibv_qp) -> T) -> Option<T> {
        let objects = self.lock();
        objects.pairs.get(&number)?.first().map(|qp| f(*qp))
    }
}
