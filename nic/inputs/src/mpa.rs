//! Any bytes at the beginning of a stream, to both ends that set a connection up. Neither panics,
//! what they understand is written back the same, and no byte is taken that is not theirs.

use urxe_iwarp::{Initiator, Offer, Outcome, REPLY_TIMEOUT_NS, Responder};
use urxe_iwarp_wire::{Enhanced, MAX_SETUP_FRAME_LEN, SetupFrame};
use urxe_proto::Instant;

const START: Instant = Instant::from_nanos(1);

/// See the module.
pub fn run(bytes: &[u8]) {
    let Some((&flags, stream)) = bytes.split_first() else {
        return;
    };
    let offer = Offer {
        wants_markers: flags & 1 != 0,
        wants_crc: flags & 2 != 0,
        ird: u16::from(flags >> 4),
        ord: u16::from(flags >> 5),
        is_enhanced: flags & 4 != 0,
        is_peer_to_peer: flags & 8 != 0,
    };
    again(stream);
    let step = 1 + usize::from(flags) * 3;
    let mut initiator = Initiator::new(START, offer, &[flags; 9]).expect("private data is short");
    let taken = feed(stream, step, |piece| initiator.handle_bytes(piece));
    assert!(taken <= MAX_SETUP_FRAME_LEN);
    if let Outcome::Established(terms) = initiator.outcome() {
        assert!(terms.ord <= offer.ord && terms.ird == offer.ird);
    }
    let private_data_len = initiator.private_data().len();
    assert!(private_data_len <= taken);
    initiator.handle_timeout(START.after(REPLY_TIMEOUT_NS));
    let is_pending = initiator.outcome() == Outcome::Pending;
    assert!(!is_pending, "it waits for ever");

    let mut responder = Responder::new(START);
    let taken = feed(stream, step, |piece| responder.handle_bytes(piece));
    assert!(taken <= MAX_SETUP_FRAME_LEN);
    let has_request = responder.request().is_some();
    if responder.outcome() == Outcome::Pending && has_request {
        let terms = responder
            .accept(&offer, &[flags; 9])
            .expect("it is pending");
        assert!(terms.ord <= offer.ord);
        SetupFrame::parse(responder.output()).expect("a frame of its own");
    } else {
        assert!(responder.output().is_empty());
    }
}

/// Hands the stream over in pieces, until one is not taken as a whole.
fn feed(stream: &[u8], step: usize, mut take: impl FnMut(&[u8]) -> usize) -> usize {
    let mut taken = 0;
    for piece in stream.chunks(step) {
        let now = take(piece);
        taken += now;
        if now < piece.len() {
            break;
        }
    }
    taken
}

/// A frame that is understood is written the same, but for bits that have no meaning.
fn again(stream: &[u8]) {
    let Ok(frame) = SetupFrame::parse(stream) else {
        return;
    };
    let mut raw = [0; MAX_SETUP_FRAME_LEN];
    let len = frame.emit(&mut raw).expect("it was just parsed");
    assert_eq!(SetupFrame::parse(&raw[..len]), Ok(frame));
    if let Some(enhanced) = frame.enhanced {
        assert_eq!(Enhanced::parse(&enhanced.emit()), enhanced);
    }
}
