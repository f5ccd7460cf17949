//! Set-up of connections, both ends ours, or one of them bytes by hand.

use urxe_iwarp::{
    FirstFrame, Initiator, Offer, Outcome, REPLY_TIMEOUT_NS, Responder, RtrKind, SetupError, Terms,
};
use urxe_iwarp_wire::{
    Enhanced, Fault, FrameKind, IRD_ORD_MAX, MAX_SETUP_FRAME_LEN, ParseError, Rtr, SetupFrame,
    Terminate,
};
use urxe_proto::Instant;

const START: Instant = Instant::from_nanos(5);

const OFFER: Offer = Offer {
    wants_markers: false,
    wants_crc: true,
    ird: 16,
    ord: 8,
    is_enhanced: true,
    is_peer_to_peer: true,
};

/// Both ends, `step` bytes at a time; what each sees in the end, and the private data that came.
fn connect(initiator: &Offer, responder: &Offer, step: usize) -> (Outcome, Terms) {
    let mut asks = Initiator::new(START, *initiator, b"hello").unwrap();
    let mut answers = Responder::new(START);
    while !asks.output().is_empty() {
        let len = step.min(asks.output().len());
        assert_eq!(answers.handle_bytes(&asks.output()[..len]), len);
        asks.handle_sent(len);
    }
    assert_eq!(answers.request().unwrap().private_data, b"hello");
    let terms = answers.accept(responder, b"welcome").unwrap();
    assert_eq!(answers.outcome(), Outcome::Established(terms));
    // Behind the reply there may be FPDUs at once.
    let stream = [answers.output(), &[9; 7]].concat();
    let (mut at, frame_len) = (0, answers.output().len());
    while at < frame_len {
        let taken = asks.handle_bytes(&stream[at..stream.len().min(at + step)]);
        assert!(taken > 0);
        at += taken;
    }
    assert_eq!(at, frame_len);
    assert_eq!(asks.handle_bytes(&stream[at..]), 0);
    assert_eq!(asks.private_data(), b"welcome");
    (asks.outcome(), terms)
}

fn reply(frame: &SetupFrame<'_>) -> Initiator {
    let mut initiator = Initiator::new(START, OFFER, b"").unwrap();
    let mut raw = [0; MAX_SETUP_FRAME_LEN];
    let len = frame.emit(&mut raw).unwrap();
    assert_eq!(initiator.handle_bytes(&raw[..len]), len);
    initiator
}

fn frame(enhanced: Enhanced) -> SetupFrame<'static> {
    SetupFrame {
        kind: FrameKind::Reply,
        wants_markers: false,
        wants_crc: true,
        is_rejected: false,
        revision: 2,
        enhanced: Some(enhanced),
        private_data: b"",
    }
}

const ENHANCED: Enhanced = Enhanced {
    is_peer_to_peer: true,
    rtr: Rtr {
        fulpdu: false,
        write: true,
        read: false,
    },
    ird: 4,
    ord: 4,
};

#[test]
fn ends_agree_whatever_the_sizes_of_reads_are() {
    let other = Offer { ord: 32, ..OFFER };
    for step in [1, 3, 20, 1000] {
        let (asks, answers) = connect(&OFFER, &other, step);
        let expected = Terms {
            sends_markers: false,
            receives_markers: false,
            has_crc: true,
            ird: 16,
            ord: 8,
            first: FirstFrame::Send(RtrKind::Write),
        };
        assert_eq!(asks, Outcome::Established(expected), "{step}");
        let expected = Terms {
            ord: 16,
            first: FirstFrame::Await,
            ..expected
        };
        assert_eq!(answers, expected, "{step}");
    }
}

#[test]
fn crcs_are_for_both_if_one_wants_them_and_markers_for_the_end_that_does() {
    for bits in 0..16u8 {
        let has = |bit: u8| bits & 1 << bit != 0;
        let ours = Offer {
            wants_crc: has(0),
            wants_markers: has(1),
            ..OFFER
        };
        let theirs = Offer {
            wants_crc: has(2),
            wants_markers: has(3),
            ..OFFER
        };
        let (Outcome::Established(asks), answers) = connect(&ours, &theirs, 64) else {
            panic!("no connection");
        };
        assert_eq!(
            (asks.has_crc, answers.has_crc),
            (has(0) || has(2), has(0) || has(2))
        );
        assert_eq!(
            (asks.receives_markers, answers.sends_markers),
            (has(1), has(1))
        );
        assert_eq!(
            (asks.sends_markers, answers.receives_markers),
            (has(3), has(3))
        );
    }
}

#[test]
fn revision_1_has_no_ird_and_no_first_frame() {
    let plain = Offer {
        is_enhanced: false,
        is_peer_to_peer: false,
        ..OFFER
    };
    let (Outcome::Established(asks), answers) = connect(&plain, &OFFER, 64) else {
        panic!("no connection");
    };
    assert_eq!((asks.ird, asks.ord, asks.first), (16, 8, FirstFrame::Free));
    assert_eq!(
        (answers.ird, answers.ord, answers.first),
        (16, 8, FirstFrame::Await)
    );
}

#[test]
fn the_reply_chooses_the_first_frame_and_bounds_what_is_outstanding() {
    let read = Rtr {
        write: false,
        read: true,
        fulpdu: true,
    };
    let cases = [
        (ENHANCED, 4, FirstFrame::Send(RtrKind::Write)),
        (
            Enhanced {
                rtr: read,
                ..ENHANCED
            },
            4,
            FirstFrame::Send(RtrKind::Read),
        ),
        (
            Enhanced {
                is_peer_to_peer: false,
                ..ENHANCED
            },
            4,
            FirstFrame::Free,
        ),
        (
            Enhanced {
                ird: IRD_ORD_MAX,
                ord: IRD_ORD_MAX,
                ..ENHANCED
            },
            8,
            FirstFrame::Send(RtrKind::Write),
        ),
    ];
    for (enhanced, ord, first) in cases {
        let Outcome::Established(terms) = reply(&frame(enhanced)).outcome() else {
            panic!("no connection: {enhanced:?}");
        };
        assert_eq!((terms.ord, terms.first), (ord, first), "{enhanced:?}");
    }
}

#[test]
fn what_cannot_be_agreed_on_ends_with_a_terminate() {
    let many = Enhanced {
        ord: 17,
        ..ENHANCED
    };
    let none = Enhanced {
        rtr: Rtr::default(),
        ..ENHANCED
    };
    let cases = [
        (many, SetupError::InsufficientIrd, Fault::MpaInsufficientIrd),
        (none, SetupError::NoMatchingRtr, Fault::MpaNoMatchingRtr),
    ];
    for (enhanced, error, fault) in cases {
        let mut initiator = reply(&frame(enhanced));
        assert_eq!(initiator.outcome(), Outcome::Failed(error));
        let request_len = SetupFrame::parse(initiator.output()).unwrap().buffer_len();
        initiator.handle_sent(request_len);
        let fpdu = initiator.output();
        // Length and DDP header, then the message of 4 bytes.
        let terminate = Terminate::parse(&fpdu[20..24]).unwrap();
        assert_eq!((terminate.fault, terminate.segment), (fault, None));
    }
}

#[test]
fn replies_that_do_not_fit_fail() {
    let cases = [
        (
            SetupFrame {
                is_rejected: true,
                ..frame(ENHANCED)
            },
            SetupError::Rejected,
        ),
        (
            SetupFrame {
                kind: FrameKind::Request,
                ..frame(ENHANCED)
            },
            SetupError::WrongKind,
        ),
        (
            SetupFrame {
                revision: 1,
                enhanced: None,
                ..frame(ENHANCED)
            },
            SetupError::Revision { revision: 1 },
        ),
        (
            SetupFrame {
                enhanced: None,
                ..frame(ENHANCED)
            },
            SetupError::Revision { revision: 2 },
        ),
    ];
    for (frame, error) in cases {
        assert_eq!(reply(&frame).outcome(), Outcome::Failed(error), "{frame:?}");
    }
}

#[test]
fn a_rejection_brings_private_data() {
    let mut asks = Initiator::new(START, OFFER, b"").unwrap();
    let mut answers = Responder::new(START);
    assert_eq!(answers.reject(b""), Err(SetupError::WrongKind));
    let _ = answers.handle_bytes(asks.output());
    answers.reject(b"not now").unwrap();
    assert_eq!(answers.outcome(), Outcome::Failed(SetupError::Rejected));
    assert_eq!(answers.accept(&OFFER, b""), Err(SetupError::WrongKind));
    let _ = asks.handle_bytes(answers.output());
    assert_eq!(asks.outcome(), Outcome::Failed(SetupError::Rejected));
    assert_eq!(asks.private_data(), b"not now");
}

#[test]
fn what_is_no_frame_is_refused_at_its_first_byte() {
    let mut answers = Responder::new(START);
    assert_eq!(answers.handle_bytes(b"GET"), 3);
    let error = SetupError::Frame(ParseError::Key);
    assert_eq!(answers.outcome(), Outcome::Failed(error));
    assert_eq!(answers.handle_bytes(b"more"), 0);
    assert!(answers.output().is_empty());
}

#[test]
fn silence_and_the_end_of_the_stream_are_noticed() {
    let mut asks = Initiator::new(START, OFFER, b"").unwrap();
    let deadline = START.after(REPLY_TIMEOUT_NS);
    assert_eq!(asks.poll_timeout(), Some(deadline));
    asks.handle_timeout(Instant::from_nanos(deadline.as_nanos() - 1));
    assert_eq!(asks.outcome(), Outcome::Pending);
    asks.handle_timeout(deadline);
    assert_eq!(asks.outcome(), Outcome::Failed(SetupError::TimedOut));
    assert_eq!(asks.poll_timeout(), None);

    let asks = Initiator::new(START, OFFER, b"").unwrap();
    let mut answers = Responder::new(START);
    let _ = answers.handle_bytes(asks.output());
    // The program may take its time to accept.
    assert_eq!(answers.poll_timeout(), None);
    answers.handle_end();
    assert_eq!(answers.outcome(), Outcome::Failed(SetupError::Ended));
}

/// The reply to a request with these flags, IRD and ORD, after `answer`.
fn replied(asked: Enhanced, answer: impl Fn(&mut Responder)) -> Enhanced {
    let mut raw = [0; MAX_SETUP_FRAME_LEN];
    let request = SetupFrame {
        kind: FrameKind::Request,
        ..frame(asked)
    };
    let len = request.emit(&mut raw).unwrap();
    let mut answers = Responder::new(START);
    let _ = answers.handle_bytes(&raw[..len]);
    answer(&mut answers);
    let reply = SetupFrame::parse(answers.output()).unwrap();
    reply.enhanced.unwrap()
}

#[test]
fn a_rejection_answers_the_flags_of_the_request() {
    let reject = |answers: &mut Responder| answers.reject(b"").unwrap();
    assert_eq!(replied(ENHANCED, reject), ENHANCED);
    let asked = Enhanced {
        rtr: Rtr {
            read: true,
            ..Rtr::default()
        },
        ird: 3,
        ord: 7,
        ..ENHANCED
    };
    // What the initiator has outstanding, this end would answer, and the other way round.
    let expected = Enhanced {
        ird: 7,
        ord: 3,
        ..asked
    };
    assert_eq!(replied(asked, reject), expected);
}

#[test]
fn a_first_read_needs_an_ird_and_an_ord() {
    let none = Offer {
        ird: 0,
        ord: 0,
        ..OFFER
    };
    let asks = Initiator::new(START, none, b"").unwrap();
    let request = SetupFrame::parse(asks.output()).unwrap();
    let rtr = request.enhanced.unwrap().rtr;
    assert!(rtr.write && !rtr.read);
    let asked = Enhanced {
        rtr: Rtr {
            read: true,
            ..Rtr::default()
        },
        ..ENHANCED
    };
    let accept = |answers: &mut Responder| assert_eq!(answers.accept(&none, b"").unwrap().ird, 1);
    assert_eq!(replied(asked, accept).ird, 1);
    let accept = |answers: &mut Responder| assert_eq!(answers.accept(&none, b"").unwrap().ird, 0);
    assert_eq!(replied(ENHANCED, accept).ird, 0);
}

#[test]
fn an_offer_is_never_said_as_not_negotiated() {
    let many = Offer {
        ird: IRD_ORD_MAX,
        ord: u16::MAX,
        ..OFFER
    };
    let asks = Initiator::new(START, many, b"").unwrap();
    let request = SetupFrame::parse(asks.output()).unwrap();
    let enhanced = request.enhanced.unwrap();
    assert_eq!((enhanced.ird, enhanced.ord), (0x3ffe, 0x3ffe));
    let asked = Enhanced {
        ird: IRD_ORD_MAX,
        ..ENHANCED
    };
    let accept = |answers: &mut Responder| {
        let terms = answers.accept(&many, b"").unwrap();
        assert_eq!((terms.ird, terms.ord), (0x3ffe, 0x3ffe));
    };
    let enhanced = replied(asked, accept);
    assert_eq!((enhanced.ird, enhanced.ord), (0x3ffe, 0x3ffe));
}

#[test]
fn no_more_private_data_is_sent_than_linux_peers_take() {
    let long = [0; 257];
    let plain = Offer {
        is_enhanced: false,
        ..OFFER
    };
    for (offer, allowed) in [(OFFER, 252), (plain, 256)] {
        let error = SetupError::PrivateDataTooLong {
            len: allowed + 1,
            allowed,
        };
        let refused = Initiator::new(START, offer, &long[..=allowed]);
        assert_eq!(refused.unwrap_err(), error);
        let asks = Initiator::new(START, offer, &long[..allowed]).unwrap();
        let mut answers = Responder::new(START);
        let _ = answers.handle_bytes(asks.output());
        assert_eq!(answers.clone().reject(&long[..=allowed]), Err(error));
        assert_eq!(answers.accept(&OFFER, &long[..=allowed]), Err(error));
        assert!(answers.accept(&OFFER, &long[..allowed]).is_ok());
    }
}

#[test]
fn as_much_private_data_is_taken_as_rfc_5044_allows() {
    let request = SetupFrame {
        kind: FrameKind::Request,
        private_data: &[7; 508],
        ..frame(ENHANCED)
    };
    let mut raw = [0; MAX_SETUP_FRAME_LEN];
    let len = request.emit(&mut raw).unwrap();
    let mut answers = Responder::new(START);
    assert_eq!(answers.handle_bytes(&raw[..len]), len);
    assert_eq!(answers.request().unwrap().private_data, [7; 508]);
}
