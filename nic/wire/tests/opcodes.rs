//! Every opcode byte, as a table for review: what it is, what headers it has, or why it is none.

use std::fmt::Write as _;

use urxe_wire::*;

#[test]
fn table_of_all_opcodes() {
    let mut table = String::new();
    for byte in 0..=u8::MAX {
        match Opcode::try_from(byte) {
            Ok(opcode) => writeln!(table, "{byte:#04x} {}", describe(opcode)).unwrap(),
            Err(error) => writeln!(table, "{byte:#04x} - {error}").unwrap(),
        }
    }
    insta::assert_snapshot!(table);
}

fn describe(opcode: Opcode) -> String {
    let Some((transport, operation)) = opcode.transport().zip(opcode.operation()) else {
        return format!("{opcode:?}");
    };
    let mut line = format!("{transport:?} {operation:?}:");
    let facts = [
        (operation.is_request(), "request"),
        (operation.is_response(), "response"),
        (operation.is_send(), "send"),
        (operation.is_write(), "write"),
        (operation.is_read_response(), "read_response"),
        (operation.is_atomic(), "atomic"),
        (operation.starts_message(), "starts"),
        (operation.ends_message(), "ends"),
        (operation.carries_payload(), "payload"),
    ];
    let extensions = Extensions::of(opcode);
    let headers = [
        (Extensions::DETH, "+deth"),
        (Extensions::XRCETH, "+xrceth"),
        (Extensions::FETH, "+feth"),
        (Extensions::RETH, "+reth"),
        (Extensions::ATOMIC, "+atomic"),
        (Extensions::AETH, "+aeth"),
        (Extensions::ATOMIC_ACK, "+atomic_ack"),
        (Extensions::IMMEDIATE, "+immediate"),
        (Extensions::IETH, "+ieth"),
    ];
    let words = facts
        .into_iter()
        .chain(headers.map(|(header, name)| (extensions.contains(header), name)));
    for (_, word) in words.filter(|(is, _)| *is) {
        write!(line, " {word}").unwrap();
    }
    write!(line, " ({} bytes)", Bth::LEN + extensions.len_bytes()).unwrap();
    line
}

#[test]
fn bytes_and_opcodes_map_to_each_other() {
    let mut defined = 0;
    for byte in 0..=u8::MAX {
        if let Ok(opcode) = Opcode::try_from(byte) {
            assert_eq!(u8::from(opcode), byte);
            assert!(opcode.is_defined());
            defined += 1;
        }
    }
    // RC 25, XRC 23, UC 12, UD 2, and the CNP.
    assert_eq!(defined, 25 + 23 + 12 + 2 + 1);
    assert_eq!(Opcode::try_from(0x81), Ok(Opcode::CNP));
}

#[test]
fn each_operation_is_exactly_one_of_first_middle_last_only() {
    for operation in Operation::ALL {
        let places = [
            operation.is_first(),
            operation.is_middle(),
            operation.is_last(),
            operation.is_only(),
        ];
        assert_eq!(places.iter().filter(|is| **is).count(), 1, "{operation:?}");
        assert_ne!(operation.is_request(), operation.is_response());
        assert_eq!(Operation::from_code(operation.code()), Some(operation));
    }
}
