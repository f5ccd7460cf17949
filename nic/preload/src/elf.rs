//! Finding a function of a loaded library in the symbol tables of the loaded objects (System V ABI,
//! chapter 5; the hash table is GNU's). We define dlsym ourselves, and it leaves an error for
//! dlerror where it finds nothing, so it is not asked.
use std::ffi::{CStr, c_char, c_int, c_void};

use libc::{Elf64_Sym, dl_phdr_info};

/// Tags of a dynamic section (elf.h).
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_GNU_HASH: i64 = 0x6fff_fef5;
/// A symbol that is a function.
const STT_FUNC: u8 = 2;

/// An entry of a dynamic section.
#[repr(C)]
struct Dynamic {
    tag: i64,
    value: u64,
}

struct Search<'a> {
    name: &'a CStr,
    /// Where this library is loaded.
    own: u64,
    /// Whether this library's definition is wanted, or one of the others'.
    in_own: bool,
    found: *mut c_void,
}

/// The first definition of `name` among the loaded objects but ours.
pub(crate) fn next_definition(name: &CStr) -> Option<*mut c_void> {
    definition(name, false)
}

/// Our definition of `name`, whatever its version.
pub(crate) fn own_definition(name: &CStr) -> Option<*mut c_void> {
    definition(name, true)
}

fn definition(name: &CStr, in_own: bool) -> Option<*mut c_void> {
    let mut search = Search {
        name,
        own: own_base(),
        in_own,
        found: std::ptr::null_mut(),
    };
    // SAFETY: the callback gets the search, which lives until the call returns.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
    (!search.found.is_null()).then_some(search.found)
}

fn own_base() -> u64 {
    // SAFETY: all zeros is a valid Dl_info, which dladdr fills in.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        libc::dladdr(
            next_definition as fn(&CStr) -> Option<*mut c_void> as *const c_void,
            &raw mut info,
        );
        info.dli_fbase as u64
    }
}

/// Looks into one object; not 0 ends the search.
unsafe extern "C" fn look(info: *mut dl_phdr_info, _size: usize, search: *mut c_void) -> c_int {
    // SAFETY: the dynamic linker's description of an object, and our search.
    let (info, search) = unsafe { (&*info, &mut *search.cast::<Search<'_>>()) };
    if (info.dlpi_addr == search.own) != search.in_own || info.dlpi_phdr.is_null() {
        return 0;
    }
    // SAFETY: the object is loaded, and its tables are as the ABI says.
    let found = unsafe { Tables::of(info).and_then(|tables| tables.find(search.name)) };
    match found {
        Some(address) => {
            search.found = address;
            1
        }
        None => 0,
    }
}

/// The tables of a loaded object.
struct Tables {
    base: u64,
    symbols: *const Elf64_Sym,
    names: *const c_char,
    hash: *const u32,
}

impl Tables {
    /// # Safety
    /// `info` describes a loaded object.
    unsafe fn of(info: &dl_phdr_info) -> Option<Self> {
        // SAFETY: by the caller's promise.
        unsafe {
            let headers = std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into());
            let dynamic = headers
                .iter()
                .find(|header| header.p_type == libc::PT_DYNAMIC)?;
            let mut entry = (info.dlpi_addr + dynamic.p_vaddr) as *const Dynamic;
            let (mut symbols, mut names, mut hash) = (0, 0, 0);
            while (*entry).tag != 0 {
                match (*entry).tag {
                    DT_SYMTAB => symbols = (*entry).value,
                    DT_STRTAB => names = (*entry).value,
                    DT_GNU_HASH => hash = (*entry).value,
                    _ => {}
                }
                entry = entry.add(1);
            }
            // glibc turns the offsets of an object into addresses, but not those of the kernel's
            // vDSO.
            let is_relocated = [symbols, names, hash]
                .iter()
                .all(|address| *address > info.dlpi_addr && *address != 0);
            is_relocated.then_some(Self {
                base: info.dlpi_addr,
                symbols: symbols as *const Elf64_Sym,
                names: names as *const c_char,
                hash: hash as *const u32,
            })
        }
    }

    /// The address of the function `name`, if the object defines it.
    ///
    /// # Safety
    /// The tables are those of a loaded object.
    unsafe fn find(&self, name: &CStr) -> Option<*mut c_void> {
        const HEADER_WORDS: usize = 4;
        const WORDS_PER_BLOOM: usize = 2;
        // SAFETY: by the caller's promise. The layout is: buckets, first symbol, words of the
        // filter, its shift; the filter; the buckets; one hash per symbol from the first on. The
        // last hash of each chain has its lowest bit set.
        unsafe {
            let (buckets, first) = (*self.hash, *self.hash.add(1));
            let filter = *self.hash.add(2) as usize;
            if buckets == 0 {
                return None;
            }
            let table = self.hash.add(HEADER_WORDS + filter * WORDS_PER_BLOOM);
            let chains = table.add(buckets as usize);
            let wanted = gnu_hash(name);
            let mut index = *table.add((wanted % buckets) as usize);
            if index < first {
                return None;
            }
            loop {
                let hash = *chains.add((index - first) as usize);
                let symbol = &*self.symbols.add(index as usize);
                if hash | 1 == wanted | 1
                    && symbol.st_shndx != 0
                    && symbol.st_info & 0xf == STT_FUNC
                    && CStr::from_ptr(self.names.add(symbol.st_name as usize)) == name
                {
                    return Some((self.base + symbol.st_value) as *mut c_void);
                }
                if hash & 1 != 0 {
                    return None;
                }
                index += 1;
            }
        }
    }
}

fn gnu_hash(name: &CStr) -> u32 {
    let bytes = name.to_bytes().iter();
    bytes.fold(5381, |hash: u32, byte| {
        hash.wrapping_mul(33).wrapping_add(u32::from(*byte))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_libc_are_found_where_dlsym_finds_them() {
        for name in [c"getpid", c"dlsym", c"dlvsym", c"opendir"] {
            // SAFETY: a string.
            let known = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
            assert_eq!(next_definition(name), Some(known), "{name:?}");
        }
        assert_eq!(next_definition(c"urxe_has_no_such_function"), None);
    }
}
