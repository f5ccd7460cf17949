use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use super::*;

/// An ELF file made by hand: its class, machine and byte order, and for each program header its
/// type, its offset and the length of its content.
struct Made {
    bits: u8,
    machine: u16,
    is_big_endian: bool,
    segments: Vec<(u32, Vec<u8>)>,
}

const X86_64: u16 = 62;
const INTERPRETER: u32 = 3;
const DYNAMIC: u32 = 2;
const NOTE: u32 = 4;

impl Made {
    fn with_interpreter(interpreter: &str) -> Self {
        let segments = vec![(INTERPRETER, format!("{interpreter}\0").into_bytes())];
        Self {
            bits: 64,
            machine: X86_64,
            is_big_endian: false,
            segments,
        }
    }

    fn number(&self, value: u64, bytes: usize) -> Vec<u8> {
        if self.is_big_endian {
            value.to_be_bytes()[8 - bytes..].to_vec()
        } else {
            value.to_le_bytes()[..bytes].to_vec()
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let word = usize::from(self.bits / 8);
        let (header, segment) = if self.bits == 64 { (64, 56) } else { (52, 32) };
        let class = self.bits / 32;
        let order = if self.is_big_endian { 2 } else { 1 };
        let mut out = vec![0x7f, b'E', b'L', b'F', class, order, 1];
        out.resize(16, 0);
        let mut add = |value: u64, bytes: usize| out.extend(self.number(value, bytes));
        add(2, 2); // an executable
        add(self.machine.into(), 2);
        add(1, 4);
        add(0, word); // where it begins
        add(header, word); // where the program headers are
        add(0, word);
        add(0, 4);
        for value in [header, segment, self.segments.len() as u64, 0, 0, 0] {
            add(value, 2);
        }
        let mut at = header + segment * self.segments.len() as u64;
        for (kind, content) in &self.segments {
            let size = content.len() as u64;
            if self.bits == 64 {
                for (value, bytes) in [(u64::from(*kind), 4), (0, 4), (at, 8), (at, 8), (at, 8)] {
                    add(value, bytes);
                }
                for value in [size, size, 4] {
                    add(value, 8);
                }
            } else {
                for value in [u64::from(*kind), at, at, at, size, size, 0, 4] {
                    add(value, 4);
                }
            }
            at += size;
        }
        out.extend(self.segments.iter().flat_map(|(_, content)| content));
        out
    }
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self, bytes: &[u8]) -> PathBuf {
        let file = self.0.path().join("program");
        std::fs::write(&file, bytes).unwrap();
        file
    }
}

fn glibc() -> Elf {
    let made = Made::with_interpreter("/lib64/ld-linux-x86-64.so.2");
    let mut library = elf::read(&File::open(Folder::new().file(&made.bytes())).unwrap()).unwrap();
    library.needed = vec!["libgcc_s.so.1".into(), "libc.so.6".into()];
    library
}

fn found(made: &Made) -> Option<Obstacle> {
    let folder = Folder::new();
    obstacle(&folder.file(&made.bytes()), &glibc())
}

fn says(obstacle: Option<Obstacle>) -> String {
    obstacle.map_or(String::new(), |obstacle| obstacle.problem())
}

#[test]
fn a_program_with_the_librarys_dynamic_linker_has_nothing_in_the_way() {
    assert_eq!(
        found(&Made::with_interpreter("/lib64/ld-linux-x86-64.so.2")),
        None
    );
    // The folder of the loader does not matter, and an unknown loader may be of any libc.
    assert_eq!(
        found(&Made::with_interpreter(
            "/nix/store/x/lib/ld-linux-x86-64.so.2"
        )),
        None
    );
    assert_eq!(found(&Made::with_interpreter("/system/bin/linker64")), None);
}

#[test]
fn a_program_for_musl_would_not_start() {
    let musl = found(&Made::with_interpreter("/lib/ld-musl-x86_64.so.1")).unwrap();
    assert!(musl.is_in_the_way_of_all() && musl.prevents_start());
    let problem = musl.problem();
    assert!(
        problem.contains("built for musl (its dynamic linker is /lib/ld-musl-x86_64.so.1)"),
        "{problem}"
    );
    assert!(musl.remedy().contains("a build for glibc"));
    // A library for musl is the other way round.
    let mut library = glibc();
    library.needed = vec!["libc.musl-x86_64.so.1".into()];
    let folder = Folder::new();
    let made = Made::with_interpreter("/lib64/ld-linux-x86-64.so.2");
    let problem = says(obstacle(&folder.file(&made.bytes()), &library));
    assert!(problem.contains("built for glibc") && problem.contains("liburxe.so for musl"));
}

#[test]
fn a_program_for_another_processor_is_named_by_it() {
    for (bits, machine, is_big_endian, name) in [
        (32, 3, false, "32-bit x86"),
        (32, X86_64, false, "x32"),
        (64, 183, false, "aarch64"),
        (32, 40, false, "32-bit ARM"),
        (64, 243, false, "RISC-V"),
        (64, 21, true, "POWER"),
        (64, 22, true, "s390x"),
        (64, 4711, false, "64-bit, ELF machine 4711"),
    ] {
        let mut made = Made::with_interpreter("/lib/ld-linux.so.2");
        (made.bits, made.machine, made.is_big_endian) = (bits, machine, is_big_endian);
        let found = found(&made).unwrap();
        assert!(!found.is_in_the_way_of_all());
        let problem = found.problem();
        assert!(
            problem.contains(name) && problem.contains("liburxe.so for x86-64"),
            "{problem}"
        );
    }
}

#[test]
fn a_static_program_has_no_dynamic_linker() {
    let mut made = Made::with_interpreter("");
    made.segments.clear();
    assert_eq!(found(&made), Some(Obstacle::Static { is_go: false }));
    // As `readelf --notes` shows it of a Go program: name, then a build ID.
    let note = |name: &[u8; 4]| {
        let numbers = [4_u32, 4, 4].map(u32::to_le_bytes).concat();
        [numbers.as_slice(), name, b"abcd"].concat()
    };
    made.segments = vec![(NOTE, note(b"GNU\0")), (NOTE, note(b"Go\0\0"))];
    let go = found(&made).unwrap();
    assert_eq!(go, Obstacle::Static { is_go: true });
    assert!(go.remedy().contains("CGO_ENABLED=1"));
    // The dynamic linker has a name as a library (DT_SONAME is 14), and a program that is static
    // and can lie anywhere (static-pie) has none.
    let entry = |tag: u64| [tag, 1, 0, 0].map(u64::to_le_bytes).concat();
    made.segments = vec![(DYNAMIC, entry(14))];
    assert_eq!(found(&made), None);
    made.segments = vec![(DYNAMIC, entry(30))];
    assert_eq!(found(&made), Some(Obstacle::Static { is_go: false }));
}

#[test]
fn a_real_program_and_library_say_what_they_need() {
    let own = elf::read(&File::open("/proc/self/exe").unwrap()).unwrap();
    assert!(libc_of_linker(own.interpreter.as_ref().unwrap()).is_some());
    assert!(libc_of_needed(&own).is_some(), "{own:?}");
    assert!(!own.is_go && !own.is_library);
    assert_eq!(obstacle(Path::new("/proc/self/exe"), &own), None);
}

/// Every length and place that a header names, made wrong, and every file cut short.
#[test]
fn malformed_files_say_nothing_or_something_and_never_fail() {
    let (folder, library) = (Folder::new(), glibc());
    let mut made = Made::with_interpreter("/lib/ld-musl-x86_64.so.1");
    let dynamic = [5_u64, 0, 10, 64, 1, 3, 0, 0]
        .map(u64::to_le_bytes)
        .concat();
    made.segments
        .extend([(DYNAMIC, dynamic), (NOTE, vec![0xff; 24])]);
    for bits in [32, 64] {
        made.bits = bits;
        let whole = made.bytes();
        for length in 0..whole.len() {
            obstacle(&folder.file(&whole[..length]), &library);
        }
        for at in 0..whole.len() {
            let mut broken = whole.clone();
            let end = (at + 8).min(broken.len());
            broken[at..end].fill(if at % 2 == 0 { 0xff } else { 0x7f });
            obstacle(&folder.file(&broken), &library);
        }
    }
}

#[test]
fn a_huge_file_is_not_read() {
    let folder = Folder::new();
    let mut made = Made::with_interpreter("/lib/ld-musl-x86_64.so.1");
    let bytes = made.bytes();
    let program = folder.file(&bytes);
    let file = File::options().write(true).open(&program).unwrap();
    // A hole of a TiB, in which 65,535 program headers and a path of as many bytes may lie.
    file.set_len(1 << 40).unwrap();
    file.write_all_at(&[0xff; 2], 56).unwrap();
    let begin = Instant::now();
    assert_eq!(obstacle(&program, &glibc()), None);
    made.segments[0].1.resize(100, 0);
    file.write_all_at(&made.bytes(), 0).unwrap();
    file.write_all_at(&(1_u64 << 39).to_le_bytes(), 64 + 32)
        .unwrap();
    assert_eq!(obstacle(&program, &glibc()), None);
    // Reading any of it would take minutes.
    assert!(begin.elapsed() < Duration::from_secs(10));
}

#[test]
fn bits_that_change_nothing_are_no_other_rights() {
    let folder = Folder::new();
    let made = Made::with_interpreter("/lib64/ld-linux-x86-64.so.2");
    let program = folder.file(&made.bytes());
    // Of the caller's own user and group; and a group's bit without its right to execute.
    for mode in [0o4755, 0o2755, 0o2745, 0o6755] {
        std::fs::set_permissions(&program, PermissionsExt::from_mode(mode)).unwrap();
        assert_eq!(obstacle(&program, &glibc()), None, "{mode:o}");
    }
}
