//! What happened, for replaying a failure, and as a number that tells two runs apart.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;

use urxe_proto::Instant;
use urxe_wire::Packet;

use crate::host::HostId;

/// Lines that are kept.
const LINES_MAX: usize = 4_000;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    lines: Option<VecDeque<String>>,
    digest: u64,
}

impl Trace {
    /// Keeps lines from now on. Without it only the digest is kept.
    pub fn keep_lines(&mut self) {
        self.lines.get_or_insert_default();
    }

    /// The last lines, oldest first.
    pub fn lines(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().flatten().map(String::as_str)
    }

    pub(crate) const fn digest(&self) -> u64 {
        self.digest
    }

    /// A packet was sent, arrived, or met its fate.
    pub(crate) fn packet(
        &mut self,
        now: Instant,
        what: &str,
        from: HostId,
        to: HostId,
        udp_payload: &[u8],
    ) {
        self.mix(now.as_nanos());
        for chunk in udp_payload
            .rchunks(4)
            .take(1)
            .chain(udp_payload.chunks(12).take(1))
        {
            self.mix(
                chunk
                    .iter()
                    .fold(0, |sum, byte| sum << 5 ^ u64::from(*byte)),
            );
        }
        if self.lines.is_some() {
            let text = describe(udp_payload);
            self.line(format!(
                "{:>12} {}->{} {what} {text}",
                now.as_nanos(),
                from.0,
                to.0
            ));
        }
    }

    /// Something else happened. `text` is only made if lines are kept.
    pub(crate) fn note(&mut self, now: Instant, text: impl FnOnce() -> String) {
        if self.lines.is_some() {
            let text = text();
            self.line(format!("{:>12} {text}", now.as_nanos()));
        }
    }

    fn line(&mut self, line: String) {
        let Some(lines) = &mut self.lines else { return };
        if lines.len() == LINES_MAX {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    /// The step of FNV-1a, by words.
    const fn mix(&mut self, value: u64) {
        self.digest = (self.digest ^ value).wrapping_mul(0x0000_0100_0000_01b3);
    }
}

fn describe(udp_payload: &[u8]) -> String {
    match Packet::parse(udp_payload) {
        Ok(Packet { header, payload }) => {
            let bth = header.bth;
            let operation = bth.opcode.operation();
            let mut text = format!(
                "{} qp {} psn {} {} B",
                operation.map_or_else(|| "Cnp".into(), |operation| format!("{operation:?}")),
                bth.dest_qp,
                bth.psn,
                payload.len()
            );
            if bth.ack_request {
                text.push_str(" ack!");
            }
            if let Some(reth) = header.reth {
                text.push_str(&format!(
                    " va {:#x} rkey {:#x} len {}",
                    reth.va, reth.rkey, reth.len
                ));
            }
            if let Some(aeth) = header.aeth {
                text.push_str(&format!(" {:?} msn {}", aeth.syndrome, aeth.msn));
            }
            text
        }
        Err(error) => format!("{} B: {error}", udp_payload.len()),
    }
}
