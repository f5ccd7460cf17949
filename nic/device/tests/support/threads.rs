//! Which processors threads run on, and how often they sleep.

/// Lets the calling thread, and those that it starts, run on this processor alone.
pub fn pin(processor: usize) {
    // SAFETY: a plain set of bits, and 0 is the calling thread.
    let status = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set)
    };
    assert_eq!(status, 0);
}

/// The processors that the calling thread may run on.
pub fn processors() -> Vec<usize> {
    // SAFETY: as above.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of_val(&set), &raw mut set);
        set
    };
    // SAFETY: all of these are in the set.
    let has = |processor: &usize| unsafe { libc::CPU_ISSET(*processor, &set) };
    (0..libc::CPU_SETSIZE as usize).filter(has).collect()
}

/// How often background threads of this process have gone to sleep.
pub fn background_sleeps() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let statuses =
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("status")).ok());
    statuses
        .filter(|status| status.starts_with("Name:\turxe\n"))
        .filter_map(|status| {
            let line = status
                .lines()
                .find(|line| line.starts_with("voluntary_ctxt_switches"))?;
            line.split('\t').nth(1)?.parse::<u64>().ok()
        })
        .sum()
}
