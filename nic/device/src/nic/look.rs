//! A thread looks for packets before it sleeps: rounds, until they find nothing for a while
//! ([`Looker`]).

use urxe_duty::{Looker, Next};
use urxe_proto::Instant;

use crate::nic::Nic;
use crate::process::clock::now;
use crate::process::usage::preemptions;

/// How [`look`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Looked {
    /// Nothing comes, or it does not pay to look: time to sleep, until the next round is wanted.
    InVain(Option<Instant>),
    /// There is something else to do.
    Done,
}

/// Runs rounds until `is_done`, or another thread is in the engine, or nothing has come for a
/// while; none if it does not pay. The round before wanted the next at `deadline`.
pub(crate) fn look(
    looker: &mut Looker,
    nic: &Nic,
    mut deadline: Option<Instant>,
    is_done: impl Fn() -> bool,
) -> Looked {
    let Some(mut look) = looker.begin(now, preemptions) else {
        return Looked::InVain(deadline);
    };
    while !is_done() {
        let Some(round) = nic.run_looking() else {
            return Looked::Done;
        };
        deadline = round.wanted_at;
        let next = looker.after_round(&mut look, round.at, round.received, preemptions);
        if next == Next::Sleep {
            return Looked::InVain(deadline);
        }
        std::hint::spin_loop();
    }
    Looked::Done
}
