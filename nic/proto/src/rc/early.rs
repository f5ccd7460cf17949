//! Packets that arrive early, between two ends that repeat selectively
//! ([`crate::PeerAbilities::SELECTIVE_REPEAT`]).
//!
//! The specification lets a responder drop what follows a gap, and has the requester send all of it
//! again: go-back-N. With the ability the responder keeps such packets, and executes them once the
//! gap is closed: to any other device they look as if the network had delayed them. It says which
//! it has: its NAK for a PSN sequence error, which has no payload otherwise, carries [`Held`] as
//! three words. A requester that finds them there sends what is missing again, and nothing else
//! ([`super::requester`]).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use urxe_wire::{Header, Packet, Psn};

use super::{distance, later};

/// Packets from the missing one on of which a NAK tells which have arrived. So many of the longest
/// are kept.
pub(crate) const EARLY_MAX: u32 = 64 * TOLD_WORDS as u32;
const TOLD_WORDS: usize = 3;
/// Of shorter ones as many are kept as these bytes hold,
const KEPT_BYTES: u32 = EARLY_MAX * 4096;
/// and at most so many times [`EARLY_MAX`].
const KEPT_TIMES_MAX: u32 = 4;
/// Responses from the missing one on that are placed when they arrive.
pub(crate) const PLACED_MAX: u32 = 64 * PLACED_WORDS as u32;
const PLACED_WORDS: usize = KEPT_TIMES_MAX as usize * TOLD_WORDS;

/// Packets from the missing one on of which those that arrive are kept: a window that fills the
/// queue of a link is longer than what a NAK tells, in packets of 1 KiB.
pub(crate) fn kept_max(mtu_bytes: u32) -> u32 {
    (KEPT_BYTES / mtu_bytes).clamp(EARLY_MAX, KEPT_TIMES_MAX * EARLY_MAX)
}

/// Which packets from `base` on have arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held<const WORDS: usize = TOLD_WORDS> {
    base: Psn,
    /// Bit 0 of the first word is `base`.
    words: [u64; WORDS],
}

/// Which responses from the missing one on are placed.
pub(crate) type Placed = Held<PLACED_WORDS>;

impl Held {
    /// What a NAK for `base` says, if it says anything.
    pub(crate) fn read(base: Psn, payload: &[u8]) -> Option<Self> {
        let mut held = Self::none(base);
        let (chunks, rest) = payload.as_chunks::<8>();
        if chunks.len() != TOLD_WORDS || !rest.is_empty() {
            return None;
        }
        for (word, chunk) in held.words.iter_mut().zip(chunks) {
            *word = u64::from_be_bytes(*chunk);
        }
        (held.count() > 0).then_some(held)
    }

    /// The payload of the NAK, three words.
    pub(crate) const fn words(&self) -> [u64; TOLD_WORDS] {
        self.words
    }
}

impl<const WORDS: usize> Held<WORDS> {
    pub(crate) const fn none(base: Psn) -> Self {
        Self {
            base,
            words: [0; WORDS],
        }
    }

    /// Adds a packet. False if it is too far away.
    pub(crate) fn insert(&mut self, psn: Psn) -> bool {
        let Some((word, bit)) = self.place(psn) else {
            return false;
        };
        self.words[word] |= 1 << bit;
        true
    }

    /// The same with `base` later.
    pub(crate) fn with_base(&self, base: Psn) -> Self {
        let mut moved = Self::none(base);
        let by = u32::try_from(base.distance_from(self.base)).unwrap_or(0);
        let (words, bits) = (by as usize / 64, by % 64);
        for (at, word) in moved.words.iter_mut().enumerate() {
            let low = self.words.get(at + words).copied().unwrap_or(0);
            let high = self.words.get(at + words + 1).copied().unwrap_or(0);
            *word = low >> bits | high.checked_shl(64 - bits).unwrap_or(0);
        }
        moved
    }

    pub(crate) fn contains(&self, psn: Psn) -> bool {
        self.place(psn)
            .is_some_and(|(word, bit)| self.words[word] >> bit & 1 == 1)
    }

    fn place(&self, psn: Psn) -> Option<(usize, u32)> {
        let index = u32::try_from(psn.distance_from(self.base)).ok()?;
        (index < 64 * WORDS as u32).then_some((index as usize / 64, index % 64))
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u32 {
        self.words.iter().map(|word| word.count_ones()).sum()
    }

    /// Those before `end`, if there are any.
    pub(crate) fn before(mut self, end: Psn) -> Option<Self> {
        let count = u32::try_from(end.distance_from(self.base)).unwrap_or(0);
        for (first, word) in (0..).step_by(64).zip(&mut self.words) {
            let bits = count.saturating_sub(first).min(64);
            *word &= u64::MAX.checked_shr(64 - bits).unwrap_or(0);
        }
        (self.count() > 0).then_some(self)
    }

    /// One past the last of them.
    pub(crate) fn end(&self) -> Psn {
        let words = (0..).step_by(64).zip(self.words);
        let last = words.filter(|(_, word)| *word != 0).last();
        last.map_or(self.base, |(first, word)| {
            self.base.add(first + 64 - word.leading_zeros())
        })
    }

    /// How many are missing from `from` to the last of them.
    pub(crate) fn missing_from(&self, from: Psn) -> u32 {
        let mut missing = 0;
        let (mut psn, end) = (from, self.end());
        while psn.is_before(end) {
            missing += u32::from(!self.contains(psn));
            psn = psn.next();
        }
        missing
    }
}

/// A request packet that waits for those before it.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    header: Header,
    payload: Vec<u8>,
}

impl Kept {
    pub(crate) fn packet(&self) -> Packet<'_> {
        Packet {
            header: self.header,
            payload: &self.payload,
        }
    }
}

/// The packets that a responder keeps. At most [`kept_max`], hence less than 1 MiB.
#[derive(Clone, Debug, Default)]
pub(crate) struct Early {
    packets: BTreeMap<u32, Kept>,
    /// The last one that was kept.
    last: Option<Psn>,
}

impl Early {
    /// Keeps a packet that follows the missing `expected`, unless it is too far away: whether it
    /// does. It takes the place of an earlier copy: the caller knows that the peer sent it, and of
    /// what came before it may not have known. None is farther than [`EARLY_MAX`] from all that is
    /// there, so that a stranger who forges one has no more PSNs to choose from.
    pub(crate) fn keep(&mut self, expected: Psn, packet: &Packet<'_>, mtu_bytes: u32) -> bool {
        let psn = packet.header.bth.psn;
        let last = self.last.map_or(expected, |last| later(last, expected));
        let ahead = distance(psn, expected);
        if ahead >= kept_max(mtu_bytes) || ahead >= distance(last, expected) + EARLY_MAX {
            return false;
        }
        self.last = Some(later(last, psn));
        let kept = Kept {
            header: packet.header,
            payload: packet.payload.to_vec(),
        };
        self.packets.insert(psn.get(), kept);
        true
    }

    /// The packet `psn`, which is not missing any more.
    pub(crate) fn take(&mut self, psn: Psn) -> Option<Kept> {
        self.packets.remove(&psn.get())
    }

    /// Whether anything is left behind `expected`. What comes before it is forgotten.
    pub(crate) fn has_behind(&mut self, expected: Psn) -> bool {
        self.packets
            .retain(|psn, _| Psn::new(*psn).is_after(expected));
        !self.packets.is_empty()
    }

    /// What a NAK for `expected` tells of what is left, if that is near enough.
    pub(crate) fn held(&self, expected: Psn) -> Option<Held> {
        let mut held = Held::none(expected);
        for psn in self.packets.keys() {
            held.insert(Psn::new(*psn));
        }
        (held.count() > 0).then_some(held)
    }
}

#[cfg(test)]
mod tests {
    use urxe_wire::{Bth, Opcode, Operation, Qpn, Transport};

    use super::*;

    const BASE: Psn = Psn::new(0x00ff_fff0);

    fn held(after: &[u32]) -> Held {
        let mut held = Held::none(BASE);
        for each in after {
            held.insert(BASE.add(*each));
        }
        held
    }

    fn bytes(held: &Held) -> Vec<u8> {
        held.words()
            .into_iter()
            .flat_map(u64::to_be_bytes)
            .collect()
    }

    #[test]
    fn what_is_told_is_understood() {
        let told = held(&[1, 2, 30, 63, 64, 191]);
        let heard = Held::read(BASE, &bytes(&told)).unwrap();
        assert_eq!(heard, told);
        for (psn, expected) in [(0, false), (1, true), (3, false), (64, true), (191, true)] {
            assert_eq!(heard.contains(BASE.add(psn)), expected, "{psn}");
        }
        assert_eq!((heard.count(), heard.end()), (6, BASE.add(192)));
        assert_eq!(held(&[1, 5]).end(), BASE.add(6));
        assert_eq!(heard.missing_from(BASE.add(25)), 192 - 25 - 4);
    }

    #[test]
    fn the_base_may_move() {
        let before = held(&[0, 1, 5, 64, 65, 130, 191]);
        for by in [0, 1, 5, 63, 64, 65, 129, 192, 300] {
            let moved = before.with_base(BASE.add(by));
            for at in 0..192 {
                let psn = BASE.add(by + at);
                assert_eq!(moved.contains(psn), before.contains(psn), "{at} by {by}");
            }
        }
    }

    #[test]
    fn what_lies_behind_an_end_is_cut_off() {
        let all = held(&[0, 1, 63, 64, 100, 191]);
        for end in [0, 1, 2, 63, 64, 65, 101, 191, 192, 300] {
            let before: Vec<_> = [0, 1, 63, 64, 100, 191]
                .into_iter()
                .filter(|at| *at < end)
                .collect();
            let expected = (!before.is_empty()).then(|| held(&before));
            assert_eq!(all.before(BASE.add(end)), expected, "{end}");
        }
        assert_eq!(all.before(BASE.sub(1)), None);
    }

    #[test]
    fn only_what_fits_is_understood() {
        assert_eq!(Held::read(BASE, &[]), None);
        assert_eq!(Held::read(BASE, &[1; 23]), None);
        assert_eq!(Held::read(BASE, &[1; 25]), None);
        assert_eq!(Held::read(BASE, &[0; 24]), None, "nothing is held");
        assert_eq!(held(&[192, 193, 500]).count(), 0);
        assert!(!held(&[1]).contains(BASE.sub(1)));
    }

    fn kept(early: &mut Early, ahead: u32, mtu_bytes: u32) -> bool {
        let opcode = Opcode::new(Transport::Rc, Operation::WriteMiddle);
        let packet = Packet {
            header: Header::new(Bth::new(opcode, Qpn::new(1), BASE.add(ahead))),
            payload: &[1; 8],
        };
        early.keep(BASE, &packet, mtu_bytes)
    }

    #[test]
    fn as_many_bytes_are_kept_of_short_packets_as_of_long_ones() {
        for (mtu_bytes, most) in [(4096, 192), (2048, 384), (1024, 768), (256, 768)] {
            let mut early = Early::default();
            let count = (1..2_000)
                .filter(|ahead| kept(&mut early, *ahead, mtu_bytes))
                .count();
            assert_eq!(
                count,
                most - 1,
                "MTU {mtu_bytes}: the missing one has its place"
            );
        }
    }

    #[test]
    fn what_is_far_from_all_that_is_there_is_not_kept() {
        let mut early = Early::default();
        assert!(!kept(&mut early, 192, 1024));
        assert!(kept(&mut early, 191, 1024));
        assert!(!kept(&mut early, 191 + 192, 1024));
        assert!(kept(&mut early, 190 + 192, 1024));
        assert!(
            kept(&mut early, 5, 1024),
            "nor is it forgotten how far that was"
        );
        assert!(kept(&mut early, 500, 1024));
    }

    #[test]
    fn what_is_too_far_away_to_be_told_is_kept_all_the_same() {
        let mut early = Early::default();
        for ahead in [1, 150, 300] {
            assert!(kept(&mut early, ahead, 1024));
        }
        assert_eq!(early.held(BASE), Some(held(&[1, 150])));
        assert!(early.has_behind(BASE.add(200)));
        assert_eq!(early.held(BASE.add(200)).map(|held| held.count()), Some(1));
        assert!(!early.has_behind(BASE.add(300)));
    }
}
