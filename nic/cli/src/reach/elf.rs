//! What an ELF file says of how the kernel and the dynamic linker start it.
//!
//! Little is read of it, however large it is: headers, and pieces of a bounded length that they
//! name. What is not a well-formed ELF file, or too unusual, says nothing.
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::mem::size_of;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use object::elf::{self, FileHeader32, FileHeader64};
use object::endian::Endianness;
use object::pod;
use object::read::elf::{Dyn, FileHeader, NoteIterator, ProgramHeader};

/// The longest piece that is read of a file, in bytes. An ordinary program has some ten program
/// headers of 56 bytes, a path of its dynamic linker, and 30 dynamic entries of 16 bytes. The names
/// of a library's symbols take the most: libc's take 31 KiB.
const PIECE_BYTES_MAX: u64 = 256 << 10;

/// The processor, word size and byte order that a file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Machine {
    kind: elf::Machine,
    is_64_bit: bool,
    is_big_endian: bool,
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match (self.kind, self.is_64_bit) {
            (elf::EM_X86_64, true) => "x86-64",
            (elf::EM_X86_64, false) => "x32 (x86-64 with 32-bit pointers)",
            (elf::EM_386, _) => "32-bit x86",
            (elf::EM_AARCH64, true) => "64-bit ARM (aarch64)",
            (elf::EM_ARM, _) => "32-bit ARM",
            (elf::EM_RISCV, true) => "64-bit RISC-V",
            (elf::EM_PPC64, _) => "64-bit POWER",
            (elf::EM_S390, true) => "s390x",
            (elf::EM_LOONGARCH, true) => "64-bit LoongArch",
            (kind, is_64_bit) => {
                let bits = if is_64_bit { 64 } else { 32 };
                return write!(f, "another processor ({bits}-bit, ELF machine {})", kind.0);
            }
        };
        f.write_str(name)
    }
}

/// What is known of an ELF file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Elf {
    pub(super) machine: Machine,
    /// The dynamic linker that the kernel starts for it; none for a static program.
    pub(super) interpreter: Option<PathBuf>,
    /// The libraries that it needs, by name.
    pub(super) needed: Vec<String>,
    /// It has a name as a library. So has the dynamic linker, which can be started as well.
    pub(super) is_library: bool,
    /// Go's linker has made it.
    pub(super) is_go: bool,
}

/// What `file` says; none if it is no ELF file or not a well-formed one.
pub(super) fn read(file: &File) -> Option<Elf> {
    let identity = piece(file, 0, size_of::<FileHeader32<Endianness>>() as u64)?;
    if identity[..4] != elf::ELFMAG {
        return None;
    }
    match identity[4] {
        1 => parse::<FileHeader32<Endianness>>(file),
        2 => parse::<FileHeader64<Endianness>>(file),
        _ => None,
    }
}

fn piece(file: &File, offset: u64, bytes: u64) -> Option<Vec<u8>> {
    if bytes > PIECE_BYTES_MAX {
        return None;
    }
    let mut piece = vec![0; usize::try_from(bytes).ok()?];
    file.read_exact_at(&mut piece, offset).ok()?;
    Some(piece)
}

fn parse<Header: FileHeader<Endian = Endianness>>(file: &File) -> Option<Elf> {
    let header = piece(file, 0, size_of::<Header>() as u64)?;
    let header = Header::parse(header.as_slice()).ok()?;
    let endian = header.endian().ok()?;
    let count = u64::from(header.e_phnum(endian));
    let size = size_of::<Header::ProgramHeader>() as u64;
    if count > 0 && u64::from(header.e_phentsize(endian)) != size {
        return None;
    }
    let segments = piece(file, header.e_phoff(endian).into(), count * size)?;
    let segments: &[Header::ProgramHeader] = pod::slice_from_all_bytes(&segments).ok()?;
    let content = |segment: &Header::ProgramHeader| {
        let (offset, bytes) = (segment.p_offset(endian), segment.p_filesz(endian));
        piece(file, offset.into(), bytes.into())
    };
    let mut found = Elf {
        machine: Machine {
            kind: header.e_machine(endian),
            is_64_bit: header.is_class_64(),
            is_big_endian: header.is_big_endian(),
        },
        interpreter: None,
        needed: Vec::new(),
        is_library: false,
        is_go: false,
    };
    for segment in segments {
        match segment.p_type(endian) {
            elf::PT_INTERP => found.interpreter = Some(path(content(segment)?)),
            elf::PT_DYNAMIC => {
                let entries = content(segment)?;
                let entries: &[Header::Dyn] = pod::slice_from_all_bytes(&entries).ok()?;
                let value = |entry: &Header::Dyn| -> u64 { entry.d_val(endian).into() };
                let first = |tag| entries.iter().find(|entry| entry.d_tag(endian) == tag);
                found.is_library = first(elf::DT_SONAME).is_some();
                let names = first(elf::DT_STRTAB).zip(first(elf::DT_STRSZ));
                let names = names.and_then(|(address, bytes)| {
                    let offset = offset_of::<Header>(segments, endian, value(address))?;
                    piece(file, offset, value(bytes))
                });
                let needed = entries
                    .iter()
                    .filter(|it| it.d_tag(endian) == elf::DT_NEEDED);
                let needed = needed.filter_map(|it| name_at(names.as_deref()?, value(it)));
                found.needed = needed.collect();
            }
            elf::PT_NOTE if !found.is_go => {
                found.is_go = content(segment).is_some_and(|notes| {
                    has_note_of_go::<Header>(endian, segment.p_align(endian), &notes)
                });
            }
            _ => {}
        }
    }
    Some(found)
}

/// Where in the file the byte is that programs see at `address`.
fn offset_of<Header: FileHeader<Endian = Endianness>>(
    segments: &[Header::ProgramHeader],
    endian: Endianness,
    address: u64,
) -> Option<u64> {
    segments
        .iter()
        .filter(|segment| segment.p_type(endian) == elf::PT_LOAD)
        .find_map(|segment| {
            let inside = address.checked_sub(segment.p_vaddr(endian).into())?;
            let is_there = inside < segment.p_filesz(endian).into();
            let offset = segment.p_offset(endian).into().checked_add(inside);
            offset.filter(|_| is_there)
        })
}

/// A path that ends with a zero byte, as that of a dynamic linker does.
fn path(mut bytes: Vec<u8>) -> PathBuf {
    let end = bytes.iter().position(|byte| *byte == 0);
    bytes.truncate(end.unwrap_or(bytes.len()));
    OsString::from_vec(bytes).into()
}

fn name_at(names: &[u8], offset: u64) -> Option<String> {
    let name = names.get(usize::try_from(offset).ok()?..)?;
    let end = name.iter().position(|byte| *byte == 0)?;
    String::from_utf8(name[..end].to_vec()).ok()
}

/// Whether there is Go's own note, the build ID that its linker writes (`cmd/link`, `-buildid`).
fn has_note_of_go<Header: FileHeader<Endian = Endianness>>(
    endian: Endianness,
    align: Header::Word,
    notes: &[u8],
) -> bool {
    let Ok(mut notes) = NoteIterator::<Header>::new(endian, align, notes) else {
        return false;
    };
    std::iter::from_fn(|| notes.next().ok().flatten()).any(|note| note.name() == b"Go")
}
