use super::*;
use crate::process::guard::take;
use urxe_proto::{AtomicOp, Memory, Placement};

fn table() -> (MemoryTable, Pd, Vec<u8>) {
    let mut table = MemoryTable::default();
    let pd = table.alloc_pd();
    (table, pd, vec![0; 64])
}

fn via(pd: Pd) -> Via {
    Via {
        pd: pd.id(),
        qp: Qpn::new(7),
    }
}

fn register<T>(table: &mut MemoryTable, pd: Pd, memory: &[T], access: Access) -> MemoryRegion {
    let host = memory.as_ptr() as u64;
    let region = Region::new(pd, host, size_of_val(memory) as u64, host, access);
    table.register(region.unwrap()).unwrap()
}

/// A region of everything that is or may come to be mapped.
fn everything(table: &mut MemoryTable, pd: Pd, access: Access) -> MemoryRegion {
    let region = Region::new(pd, 0, u64::MAX, 0, access | Access::ON_DEMAND);
    table.register(region.unwrap()).unwrap()
}

const fn range(rkey: u32, va: u64, len: u32) -> RemoteRange {
    RemoteRange { rkey, va, len }
}

const fn sge(lkey: u32, addr: u64, len: u32) -> Sge {
    Sge { addr, len, lkey }
}

#[test]
fn a_write_outside_the_region_touches_nothing() {
    let (mut table, pd, memory) = table();
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let mr = register(&mut table, pd, &memory[..32], access);
    // Beyond its end, and around that of all memory.
    for (va, len) in [(memory.as_ptr() as u64 + 24, 9), (u64::MAX - 3, 8)] {
        let written = table.write_remote(via(pd), range(mr.rkey, va, len), &vec![1; len as usize]);
        assert_eq!(written, Err(AccessError::OutOfBounds));
    }
    assert!(memory.iter().all(|byte| *byte == 0));
}

#[test]
fn key_protection_domain_and_rights_are_checked() {
    let (mut table, pd, memory) = table();
    let other = table.alloc_pd();
    let mr = register(&mut table, pd, &memory, Access::LOCAL_WRITE);
    let va = memory.as_ptr() as u64;
    for (pd, rkey, error) in [
        (pd, mr.rkey, AccessError::Denied),
        (other, mr.rkey, AccessError::WrongPd),
        (pd, mr.rkey ^ 1, AccessError::UnknownKey),
    ] {
        let written = table.write_remote(via(pd), range(rkey, va, 1), &[1]);
        assert_eq!(written, Err(error));
    }
    table.deregister(mr.lkey).unwrap();
    let written = table.write_local(pd.id(), &sge(mr.lkey, va, 1), 0, &[1]);
    assert_eq!(written, Err(AccessError::UnknownKey));
}

#[test]
fn the_programs_own_requests_keep_to_their_rights_and_elements() {
    let (mut table, pd, memory) = table();
    let [for_reading, for_writing] = [Access::empty(), Access::LOCAL_WRITE].map(|access| {
        let mr = register(&mut table, pd, &memory, access);
        sge(mr.lkey, memory.as_ptr() as u64, 10)
    });
    let mut write = |sge: &Sge, at, bytes: &[u8]| table.write_local(pd.id(), sge, at, bytes);
    assert_eq!(write(&for_reading, 0, &[1]), Err(AccessError::Denied));
    // The region goes on behind the element.
    let beyond = Err(AccessError::OutOfBounds);
    assert_eq!(write(&for_writing, 8, &[1; 3]), beyond);
    assert_eq!(memory, [0; 64]);
    write(&for_writing, 8, &[1; 2]).unwrap();
    assert_eq!(memory[8..10], [1; 2]);
    let read = table.read_local(pd.id(), &for_reading, 8, &mut [0; 3]);
    assert_eq!(read, beyond);
}

#[test]
fn memory_that_is_not_there_or_wraps_around_is_no_region() {
    let (_, pd, memory) = table();
    let new = |host, len, base| Region::new(pd, host, len, base, Access::LOCAL_WRITE);
    // The first page is never mapped.
    let missing = new(64, 8, 64).unwrap_err();
    assert!(matches!(missing, Error::Access(AccessError::Fault)));
    let (host, near_end) = (memory.as_ptr() as u64, u64::MAX - 7);
    for (host, base) in [(near_end, host), (host, near_end)] {
        assert!(matches!(new(host, 16, base), Err(Error::Invalid(_))));
    }
    assert!(new(host, 16, host).is_ok());
}

#[test]
fn remote_write_needs_local_write() {
    let (_, pd, memory) = table();
    let host = memory.as_ptr() as u64;
    assert!(Region::new(pd, host, 64, host, Access::REMOTE_WRITE).is_err());
}

#[test]
fn addresses_count_from_the_base_that_was_asked_for() {
    let (mut table, pd, memory) = table();
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let region = Region::new(pd, memory.as_ptr() as u64, 64, 0, access);
    let mr = table.register(region.unwrap()).unwrap();
    let there = range(mr.rkey, 10, 3);
    table.write_remote(via(pd), there, b"abc").unwrap();
    assert_eq!(&memory[10..13], b"abc");
}

#[test]
fn atomics_return_the_old_value_and_want_alignment() {
    let (mut table, pd, _) = table();
    let cell = vec![5u64];
    let at = cell.as_ptr() as u64;
    let access = Access::LOCAL_WRITE | Access::REMOTE_ATOMIC;
    let mr = register(&mut table, pd, &cell, access);
    let add = AtomicOp::FetchAdd { add: 3 };
    assert_eq!(table.atomic(via(pd), mr.rkey, at, add), Ok(5));
    let swap = AtomicOp::CompareSwap {
        compare: 8,
        swap: 1,
    };
    assert_eq!(table.atomic(via(pd), mr.rkey, at, swap), Ok(8));
    assert_eq!(
        table.atomic(via(pd), mr.rkey, at + 4, add),
        Err(AccessError::Misaligned)
    );
}

#[test]
fn an_atomic_write_stores_eight_bytes_and_wants_alignment() {
    let (mut table, pd, _) = table();
    let cells = vec![5u64; 2];
    let at = cells.as_ptr() as u64;
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let mr = register(&mut table, pd, &cells, access);
    let mut write = |va| table.write_atomic(via(pd), mr.rkey, va, 7u64.to_ne_bytes());
    assert_eq!(write(at), Ok(()));
    assert_eq!(write(at + 4), Err(AccessError::Misaligned));
    assert_eq!(write(at + 16), Err(AccessError::OutOfBounds));
    assert_eq!(cells, [7, 5]);
    let access = Access::LOCAL_WRITE | Access::REMOTE_ATOMIC;
    let read_only = register(&mut table, pd, &cells, access);
    let denied = table.write_atomic(via(pd), read_only.rkey, at, [0; 8]);
    assert_eq!(denied, Err(AccessError::Denied));
}

#[test]
fn only_a_region_registered_for_it_is_flushed_and_none_for_ever() {
    let (mut table, pd, memory) = table();
    let va = memory.as_ptr() as u64;
    let plain = register(&mut table, pd, &memory, Access::LOCAL_WRITE).rkey;
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::FLUSH_GLOBAL;
    let rkey = register(&mut table, pd, &memory, access).rkey;
    let mut flush = |rkey, range, placement| table.flush(via(pd), rkey, range, placement);
    let whole = Some((va, memory.len() as u32));
    assert_eq!(flush(rkey, whole, Placement::GLOBAL), Ok(()));
    assert_eq!(flush(rkey, None, Placement::GLOBAL), Ok(()));
    let beyond = Some((va + 1, memory.len() as u32));
    assert_eq!(
        flush(rkey, beyond, Placement::GLOBAL),
        Err(AccessError::OutOfBounds)
    );
    for (rkey, placement) in [
        (plain, Placement::GLOBAL),
        (rkey, Placement::PERSISTENT),
        (rkey, Placement::GLOBAL | Placement::PERSISTENT),
    ] {
        assert_eq!(flush(rkey, None, placement), Err(AccessError::Denied));
    }
}

#[test]
fn keys_are_not_predictable() {
    let (mut table, pd, memory) = table();
    let keys: Vec<u32> = (0..64)
        .map(|_| register(&mut table, pd, &memory, Access::LOCAL_WRITE).rkey)
        .collect();
    let steps: std::collections::HashSet<u32> = keys
        .windows(2)
        .map(|pair| pair[1].wrapping_sub(pair[0]))
        .collect();
    assert!(steps.len() > 60, "keys follow a pattern: {keys:x?}");
}

#[test]
fn a_null_region_reads_as_zeros_and_forgets() {
    let (mut table, pd, _) = table();
    let mr = table.register_null(pd).unwrap();
    let sge = sge(mr.lkey, 0xdead_beef, 100);
    table.write_local(pd.id(), &sge, 0, &[7; 100]).unwrap();
    let mut read = [1; 100];
    table.read_local(pd.id(), &sge, 0, &mut read).unwrap();
    assert_eq!(read, [0; 100]);
}

#[test]
fn a_null_region_reads_as_zeros_and_forgets_what_peers_write() {
    let (mut table, pd, _) = table();
    let rkey = table.register_null(pd).unwrap().rkey;
    let range = range(rkey, u64::MAX - 200, 100);
    table.write_remote(via(pd), range, &[7; 100]).unwrap();
    let halves: [&[u8]; 2] = [&[7; 60], &[7; 40]];
    table.write_remote_pieces(via(pd), range, &halves).unwrap();
    let add = AtomicOp::FetchAdd { add: 3 };
    assert_eq!(table.atomic(via(pd), rkey, 8, add), Ok(0));
    assert_eq!(table.atomic(via(pd), rkey, 8, add), Ok(0));
    let at = table.remote(via(pd), range, RemoteAccess::Read).unwrap();
    let mut read = [1; 100];
    // SAFETY: the device's own zeros.
    unsafe { take(at, &mut read).unwrap() };
    assert_eq!(read, [0; 100]);
}

#[test]
fn on_demand_memory_that_is_missing_is_a_fault_and_no_crash() {
    let (mut table, pd, memory) = table();
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let everything = everything(&mut table, pd, access);
    let rkey = everything.rkey;
    let present = range(rkey, memory.as_ptr() as u64, 3);
    table.write_remote(via(pd), present, b"abc").unwrap();
    assert_eq!(&memory[..3], b"abc");
    // The first page is never mapped; a constant cannot be written.
    for va in [64, b"constant".as_ptr() as u64] {
        let missing = range(rkey, va, 3);
        let checked = table.check_remote(via(pd), missing, RemoteAccess::Write);
        assert_eq!(checked, Ok(()));
        let written = table.write_remote(via(pd), missing, b"abc");
        assert_eq!(written, Err(AccessError::Fault));
    }
    let sge = sge(everything.lkey, 64, 8);
    let read = table.read_local(pd.id(), &sge, 0, &mut [0; 8]);
    assert_eq!(read, Err(AccessError::Fault));
    let missing = table.prefetch(pd, &sge, false, true).unwrap_err();
    assert_eq!(missing.errno(), libc::EFAULT);
    table.prefetch(pd, &sge, false, false).unwrap();
}

#[test]
fn looking_ahead_harms_nothing_wherever_a_message_is_expected() {
    let (mut table, pd, memory) = table();
    let everything = everything(&mut table, pd, Access::LOCAL_WRITE);
    let mr = register(&mut table, pd, &memory, Access::LOCAL_WRITE);
    let here = memory.as_ptr() as u64;
    for (addr, lkey) in [
        (here, mr.lkey),
        (here + 1, mr.lkey),
        (here, 0),
        (0, everything.lkey),
        (u64::MAX - 64, everything.lkey),
    ] {
        table.expect_message(pd.id(), &sge(lkey, addr, 64), 1 << 20);
        table.look_ahead();
        assert!(table.ahead.is_none(), "once is enough");
    }
}

#[test]
fn a_protection_domain_in_use_stays() {
    let (mut table, pd, memory) = table();
    let mr = register(&mut table, pd, &memory, Access::empty());
    assert!(matches!(table.dealloc_pd(pd), Err(Error::Busy(_))));
    table.deregister(mr.lkey).unwrap();
    table.dealloc_pd(pd).unwrap();
}
