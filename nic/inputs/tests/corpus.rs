//! Replays what was kept, and inputs that are nothing in particular.

use std::path::Path;

use urxe_inputs::TARGETS;

#[test]
fn the_corpora_do_no_harm() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for (name, run) in TARGETS {
        let folder = root.join(name);
        let files = std::fs::read_dir(&folder)
            .unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let mut count = 0;
        for file in files {
            let path = file.unwrap().path();
            println!("{}", path.display());
            run(&std::fs::read(&path).unwrap());
            count += 1;
        }
        assert!(count >= 20, "{name}: only {count} inputs");
    }
}

#[test]
fn noise_does_no_harm() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut byte = || {
        // xorshift64: any bytes will do.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    for (_, run) in TARGETS {
        for len in 0..600 {
            let bytes: Vec<_> = (0..len).map(|_| byte()).collect();
            run(&bytes);
        }
    }
}
