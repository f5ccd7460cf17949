//! Whether memory is mapped, and may be read or written, found out without touching it: nothing is
//! brought in.
//!
//! Linux 6.11 answers for one mapping (`PROCMAP_QUERY`), whatever others there are: 6 us with 1,000
//! mappings in the process. Earlier ones tell all mappings as text, 0.3 ms then; and without /proc,
//! only whether the memory is mapped.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::ops::Range;
use std::os::fd::AsRawFd;

use crate::process::odp::page_bytes;

const MAPS: &str = "/proc/self/maps";

/// `struct procmap_query` of linux/fs.h.
#[repr(C)]
#[derive(Default)]
struct Query {
    size: u64,
    flags: u64,
    at: u64,
    start: u64,
    end: u64,
    rights: u64,
    page_bytes: u64,
    offset: u64,
    inode: u64,
    device: [u32; 2],
    name_bytes: u32,
    build_id_bytes: u32,
    name: u64,
    build_id: u64,
}

/// `_IOWR('f', 17, struct procmap_query)`.
const PROCMAP_QUERY: libc::c_ulong = 0xc068_6611;
const _: () = assert!(size_of::<Query>() == 0x68);

/// `PROCMAP_QUERY_VMA_READABLE` and `_WRITABLE`.
const READABLE: u64 = 1;
const WRITABLE: u64 = 2;

/// What is done to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Reads,
    Writes,
}

/// Whether every byte of `range`, which is not empty, is mapped with the right to `wanted`.
pub(super) fn is_accessible(range: Range<u64>, wanted: Use) -> bool {
    let Ok(maps) = File::open(MAPS) else {
        return is_mapped(&range);
    };
    let found = is_covered(range.clone(), |at| mapping_at(&maps, at, wanted));
    found
        .or_else(|_| is_covered_by_text(BufReader::new(maps), &range, wanted))
        // A kernel that does not tell: an access finds out (`crate::process::guard`).
        .unwrap_or(true)
}

/// Whether mappings cover `range`. `end_of` tells where the one at an address ends, if there is one
/// with the right.
fn is_covered(
    range: Range<u64>,
    mut end_of: impl FnMut(u64) -> io::Result<Option<u64>>,
) -> io::Result<bool> {
    let mut at = range.start;
    while at < range.end {
        match end_of(at)? {
            Some(end) if end > at => at = end,
            _ => return Ok(false),
        }
    }
    Ok(true)
}

fn mapping_at(maps: &File, at: u64, wanted: Use) -> io::Result<Option<u64>> {
    let mut query = Query {
        size: size_of::<Query>() as u64,
        at,
        ..Query::default()
    };
    // SAFETY: the structure is the kernel's, names and build IDs are not asked for, and it lives
    // until the call returns.
    if unsafe { libc::ioctl(maps.as_raw_fd(), PROCMAP_QUERY, &raw mut query) } != 0 {
        let error = io::Error::last_os_error();
        return match error.raw_os_error() {
            Some(libc::ENOENT) => Ok(None),
            _ => Err(error),
        };
    }
    let right = match wanted {
        Use::Reads => READABLE,
        Use::Writes => WRITABLE,
    };
    Ok((query.rights & right != 0).then_some(query.end))
}

/// The same by the text of /proc/self/maps (proc_pid_maps(5)), whose lines are in the order of
/// addresses.
fn is_covered_by_text(maps: impl BufRead, range: &Range<u64>, wanted: Use) -> io::Result<bool> {
    let mut at = range.start;
    for line in maps.split(b'\n') {
        let line = line?;
        let (mapping, rights) = parse(&line).ok_or(io::ErrorKind::InvalidData)?;
        if mapping.end <= at {
            continue;
        }
        let has_right = match wanted {
            Use::Reads => rights[0] == b'r',
            Use::Writes => rights[1] == b'w',
        };
        if mapping.start > at || !has_right {
            return Ok(false);
        }
        at = mapping.end;
        if at >= range.end {
            return Ok(true);
        }
    }
    Ok(false)
}

/// `start-end rwxp ...`, in hexadecimal.
fn parse(line: &[u8]) -> Option<(Range<u64>, &[u8])> {
    let mut fields = line.split(|byte| *byte == b' ');
    let (addresses, rights) = (fields.next()?, fields.next()?);
    let (start, end) = std::str::from_utf8(addresses).ok()?.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    let is_whole = rights.len() == 4;
    is_whole.then_some((number(start)?..number(end)?, rights))
}

/// Whether the pages of `range` are mapped, with whatever rights.
fn is_mapped(range: &Range<u64>) -> bool {
    let start = range.start - range.start % page_bytes();
    let bytes = (range.end - start) as usize;
    // SAFETY: MS_ASYNC does nothing since Linux 2.6.19, but fail with ENOMEM for a hole (msync(2)).
    unsafe { libc::msync(start as *mut libc::c_void, bytes, libc::MS_ASYNC) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 4096;

    /// Pages with the given rights, one after the other; `None` is a hole.
    fn pages(rights: &[Option<i32>]) -> u64 {
        let page = page_bytes() as usize;
        let start = crate::support::apart::map(rights.len() * page, libc::PROT_NONE);
        // SAFETY: parts of a new mapping are changed or unmapped.
        unsafe {
            for (index, rights) in rights.iter().enumerate() {
                let at = start.add(index * page);
                let status = match rights {
                    Some(rights) => libc::mprotect(at, page, *rights),
                    None => libc::munmap(at, page),
                };
                assert_eq!(status, 0);
            }
            start as u64
        }
    }

    /// Each way to find out, by its name.
    fn answers(range: &Range<u64>, wanted: Use) -> Vec<(&'static str, bool)> {
        let maps = File::open(MAPS).unwrap();
        let mut answers = vec![("whichever", is_accessible(range.clone(), wanted))];
        if let Ok(answer) = is_covered(range.clone(), |at| mapping_at(&maps, at, wanted)) {
            answers.push(("query", answer));
        }
        let text = is_covered_by_text(BufReader::new(maps), range, wanted).unwrap();
        answers.push(("text", text));
        answers
    }

    fn check(range: Range<u64>, wanted: Use, expected: bool) {
        for (way, answer) in answers(&range, wanted) {
            assert_eq!(answer, expected, "{way} of {range:#x?} for {wanted:?}");
        }
    }

    #[test]
    fn holes_and_missing_rights_are_found_by_every_way() {
        const BOTH: i32 = libc::PROT_READ | libc::PROT_WRITE;
        let page = page_bytes();
        let start = pages(&[
            Some(BOTH),
            Some(libc::PROT_READ),
            Some(BOTH),
            Some(libc::PROT_NONE),
            Some(BOTH),
            None,
            Some(BOTH),
        ]);
        let at = |from: u64, to: u64| start + from..start + to;
        check(at(0, page), Use::Writes, true);
        check(at(7, 3 * page), Use::Reads, true);
        check(at(7, page + 1), Use::Writes, false);
        check(at(2 * page, 3 * page + 1), Use::Reads, false);
        check(at(3 * page, 3 * page + 1), Use::Reads, false);
        check(at(4 * page, 5 * page), Use::Writes, true);
        check(at(5 * page - 1, 5 * page + 1), Use::Reads, false);
        check(at(5 * page, 5 * page + 1), Use::Reads, false);
        check(at(4 * page, 7 * page), Use::Reads, false);
        check(0..8, Use::Reads, false);
        assert!(is_mapped(&at(7, 5 * page)));
        assert!(!is_mapped(&at(7, 5 * page + 1)));
        assert!(!is_mapped(&(0..8)));
    }

    #[test]
    fn nothing_is_brought_in() {
        let start = pages(&[Some(libc::PROT_READ | libc::PROT_WRITE); 4]);
        let range = start..start + 4 * page_bytes();
        assert!(is_mapped(&range));
        check(range, Use::Writes, true);
        let mut resident = [0u8; 4];
        // SAFETY: one byte for each page.
        let status = unsafe {
            let bytes = 4 * page_bytes() as usize;
            libc::mincore(start as *mut libc::c_void, bytes, resident.as_mut_ptr())
        };
        assert_eq!((status, resident), (0, [0; 4]));
    }

    /// What it costs does not depend on how many mappings there are elsewhere.
    #[test]
    fn only_mappings_of_the_range_are_asked_for() {
        let mut asked = Vec::new();
        let found = is_covered(5 * PAGE..8 * PAGE, |at| {
            asked.push(at);
            Ok(Some((at / PAGE + 2) * PAGE))
        });
        assert!(found.unwrap());
        assert_eq!(asked, [5 * PAGE, 7 * PAGE]);
        let refused = is_covered(5..8, |_| Err(io::ErrorKind::Unsupported.into()));
        assert!(refused.is_err(), "another way has to be found");
    }

    #[test]
    fn names_of_files_may_be_any_bytes() {
        let text =
            b"1000-2000 r--p 00000000 00:00 0   /tmp/\xff \xfe\n2000-3000 rw-s 00000000 00:00 0\n";
        assert!(is_covered_by_text(&text[..], &(0x1004..0x2008), Use::Reads).unwrap());
        assert!(!is_covered_by_text(&text[..], &(0x1004..0x2008), Use::Writes).unwrap());
        assert!(!is_covered_by_text(&text[..], &(0x2fff..0x3001), Use::Writes).unwrap());
        assert!(is_covered_by_text(&b"nonsense"[..], &(0..1), Use::Reads).is_err());
    }
}
