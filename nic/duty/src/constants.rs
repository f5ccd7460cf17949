//! Every number behind a decision: its unit, what it means, where it comes from, and how to measure
//! it again.
//!
//! Commands are to be run on two nodes of an emulated fabric, interleaved with the value of today,
//! on a quiet machine and on one with another busy process per core. "Chosen" says that the value
//! was tried, and that nothing derives it.

/// Declares a constant, and documents it in one form.
macro_rules! constants {
    ($($name:ident: $type:ty = $value:expr, $unit:literal;
        means $meaning:literal; from $source:literal; again $again:literal;)*) => {
        $(
            #[doc = $meaning]
            #[doc = ""]
            #[doc = concat!("Unit: ", $unit, ". Source: ", $source, " To measure it again: ", $again)]
            pub const $name: $type = $value;
        )*
    };
}

// The background thread.
constants! {
    LOOK_AGAIN_NS: u64 = 1_000_000, "ns";
        means "The background thread's first sleep beside a program that polls; the span over which polls are counted.";
        from "A look takes 10 to 30 us of the program's processor. A look each millisecond at both ends made a 64 B ping-pong 8 % longer.";
        again "`ib_send_lat -s 64` with half and twice the value.";
    LOOK_AGAIN_POLLED_MAX_NS: u64 = 2_000_000, "ns";
        means "The longest of these sleeps: a peer asks again for what a program leaves unanswered that has just stopped polling.";
        from "Chosen: after a longer silence the peer sends its packet again.";
        again "`ib_write_lat -s 64` with twice the value: the longest latency.";
    LOOK_AGAIN_BLOCKED_MAX_NS: u64 = 64_000_000, "ns";
        means "The longest sleep while threads of the program run the engine in blocking calls.";
        from "Chosen.";
        again "`ib_send_lat -e -s 64`: processor time of the background thread.";
    SENDS_NS: u64 = 200_000, "ns";
        means "The first sleep beside a program that tells when its requests are answered; it may run no round that shows it the answers.";
        from "Chosen.";
        again "`ib_write_lat -s 262144` with half and twice the value.";
    BUSY_POLLS: u64 = 16, "polls per LOOK_AGAIN_NS";
        means "A program that polls this often makes progress itself.";
        from "Chosen.";
        again "a program that computes for 20 to 200 us between polls: latency of its peer.";
    BUSY_POLLS_MIN: u64 = 2, "polls per LOOK_AGAIN_NS";
        means "The same for a program that gets BUSY_WORK done besides: long rounds are few.";
        from "Chosen.";
        again "`ib_write_bw -s 1048576 -q 16`.";
    BUSY_WORK: u64 = 32, "packets and posts per LOOK_AGAIN_NS";
        means "See BUSY_POLLS_MIN.";
        from "Chosen.";
        again "`ib_write_bw -s 1048576 -q 16`.";
    FULL_WORK: u64 = 128, "packets and posts per LOOK_AGAIN_NS";
        means "A program that got so much done was in the engine for much of the time: one poll is enough.";
        from "To make a packet takes about 1 us.";
        again "`ib_write_bw -s 1048576 -q 16`.";
    RECENT_NS: u64 = 1_000_000, "ns";
        means "A round of the program's own that is older was its last for now: the program computes, or reads its memory.";
        from "Chosen.";
        again "`ib_write_lat -s 64` with half and twice the value.";
    HELD_MAX_NS: u64 = 200_000, "ns";
        means "What has waited for company so long was posted by a program that did not go on to poll.";
        from "Chosen, above ROUND_NS.";
        again "MPI ranks that compute for 0.1 to 1 ms between nonblocking sends.";
    LATE_NS: u64 = 200_000, "ns";
        means "A polling program that has missed a deadline of the engine by so much has stopped.";
        from "Chosen.";
        again "`ib_write_lat -s 64` beside another busy process.";
    VIGILANCE_MIN_NS: u64 = 2_000_000, "ns";
        means "How long the background thread does not sleep after a program stopped polling without a word, at first.";
        from "Chosen, as long as the longest sleep beside a program that polls.";
        again "`ib_write_lat -s 64`: share of messages later than 100 us.";
    VIGILANCE_MAX_NS: u64 = 100_000_000, "ns";
        means "The same if that happens again and again.";
        from "Chosen.";
        again "`ib_write_lat -s 64`, then `ib_send_lat -s 64` on one connection.";
    PAUSE_MIN_NS: u64 = 5_000, "ns";
        means "How long the background thread waits when the program is in the engine, at first; doubles.";
        from "Chosen.";
        again "`ib_send_bw -s 64`: instructions per message.";
    PAUSE_MAX_NS: u64 = 50_000, "ns";
        means "The longest of these pauses.";
        from "A pause costs the program's processor some 20 us.";
        again "`ib_write_bw -s 262144`.";
    PAUSES_MAX: u32 = 20, "pauses in a row";
        means "After so many the thread queues up at the engine's lock.";
        from "Chosen: together about 1 ms.";
        again "`ib_write_bw -s 1048576 -q 16`.";
    PAUSES_LONG: u32 = 1, "pauses in a row";
        means "After so many the program is about something long: a program that may stop is left alone until its requests are answered.";
        from "Four pauses were half of the time of a WRITE of 256 KiB.";
        again "`ib_write_lat -s 262144`.";
    WAIT_SHOWN_NS: u64 = 5_000, "ns";
        means "A wait of the background thread that was so long let the program poll: it shows whether the program did, and that others had the processor.";
        from "Chosen.";
        again "`ib_write_lat -s 64` on one processor.";
    POLLS_ON: u64 = 16, "polls";
        means "A program that has polled so often since all its requests were answered polls on.";
        from "Chosen.";
        again "`ib_write_lat` and `ib_send_lat`, 64 B.";
    STOP_WEIGHT: u8 = 3, "times that the program polled on";
        means "What one stop weighs: a program may send two or three messages before it reads its memory.";
        from "Chosen.";
        again "`osu_latency` over UCX.";
    STOP_WEIGHT_MAX: u8 = 12, "times that the program polled on";
        means "A program that polls on from now on is believed after so many times.";
        from "Chosen: four stops.";
        again "`ib_write_lat -s 64`, then `ib_send_lat -s 64` on one connection.";
    STEP_ASIDE_AFTER_MIN_NS: u64 = 500_000, "ns";
        means "A background thread that has worked so long without a rest steps aside once; twice as long each time that the program does not poll then.";
        from "With 16 queue pairs and messages of 1 MiB a program got 4 to 33 % of its own processor.";
        again "`ib_write_bw -s 1048576 -q 16` on one processor.";
    STEP_ASIDE_AFTER_MAX_NS: u64 = 50_000_000, "ns";
        means "The longest such span: stepping aside then costs a thousandth of the time.";
        from "STEP_ASIDE_NS * 1000.";
        again "it is arithmetic.";
    STEP_ASIDE_NS: u64 = 50_000, "ns";
        means "How long the thread steps aside: a program that was interrupted while it polled goes on with that.";
        from "Chosen.";
        again "`ib_write_bw -s 1048576 -q 16` on one processor.";
}

// Threads that look for packets before they sleep.
constants! {
    LOOK_NS: u64 = 100_000, "ns";
        means "How long a thread looks after the last packet: while the peer sleeps, too, and is woken.";
        from "Chosen.";
        again "`ib_send_lat -e -s 64` with half and twice the value.";
    SHORT_SLEEP_NS: u64 = 150_000, "ns";
        means "A sleep that ended so soon was short: looking would have been no longer than waking up.";
        from "Chosen: two wake-ups are in it, the peer's and one's own.";
        again "`ib_send_lat -e -s 64`.";
    SHORT_SLEEPS_MIN: u32 = 4, "sleeps";
        means "Short sleeps before a thread looks, at first.";
        from "Chosen.";
        again "`rping -C 1000`: time until it is at full speed.";
    SHORT_SLEEPS_MAX: u32 = 1024, "sleeps";
        means "The same after many vain looks.";
        from "Chosen.";
        again "`ib_send_lat -e -s 64` with both programs on one processor.";
    LOOK_AROUND_NS: u64 = 1_000_000, "ns";
        means "How often a thread that looks asks whether another wants its processor.";
        from "Chosen.";
        again "it is arithmetic.";
    READY_WAITS: u32 = 4, "calls";
        means "A program that has found an event each time so often waits for the channel's descriptor by itself.";
        from "Chosen.";
        again "`ib_send_lat -e -s 64`, and a program that uses poll(2).";
}

// Threads that poll.
constants! {
    POLLS_BEFORE_LOOK: u32 = 64, "polls";
        means "Vain polls in a row before the first look at the clock: longer than a round trip.";
        from "Chosen: some 10 us.";
        again "`ib_send_lat -s 64`: instructions per message.";
    POLLS_PER_LOOK: u32 = 16, "polls";
        means "From then on one poll in so many looks at the clock.";
        from "Chosen.";
        again "`ib_send_lat -s 64`: instructions per message.";
    POLLS_BETWEEN_WAITS: u32 = 4, "polls";
        means "The same after a wait in which nothing came.";
        from "Chosen.";
        again "16 MPI ranks on two processors.";
    SAMPLE_NS: u64 = 1_000_000, "ns";
        means "How often a polling thread asks the kernel how long it ran.";
        from "Chosen.";
        again "it is arithmetic.";
    SAMPLES_APART_MAX_NS: u64 = 1_000_000_000, "ns";
        means "Between two samples further apart the thread did other things than polling.";
        from "Where a hundred programs share a processor, each waits for it for a few hundred milliseconds.";
        again "a hundred MPI ranks on two processors.";
    LOST_MIN_NS: u64 = 300_000, "ns";
        means "A thread that lost less between two samples has its processor to itself.";
        from "Chosen.";
        again "`ib_send_lat -s 64`, quiet: number of waits.";
    CONTENDED_TIMES: u64 = 16, "times";
        means "Others are taken to want the processor for so many times as long as they had it.";
        from "Chosen: finding out takes at most a time slice (3 ms).";
        again "`ib_send_lat -s 64` with both programs on one processor.";
    CONTENDED_MAX_NS: u64 = 1_000_000_000, "ns";
        means "But no longer than this.";
        from "Chosen.";
        again "`ib_send_lat -s 64` beside a process that ends.";
    YIELD_NS: u64 = 50_000, "ns";
        means "A thread that sent something and has polled in vain so long yields its processor once: Linux may have woken the peer there.";
        from "Chosen, longer than a peer takes to answer.";
        again "`ib_send_lat -e -s 64`, both programs free to run on two processors.";
    WAIT_NS: u64 = 50_000, "ns";
        means "The first wait in the kernel of a thread whose processor others want: the program may have other things to poll.";
        from "Chosen.";
        again "16 MPI ranks on two processors.";
    DOUBLINGS: u32 = 3, "times";
        means "How often waits in which nothing came double.";
        from "Waits of 400 us at most: with 10 ms, allreduce of 16 ranks on two processors took 12 to 15 times as long; with 50 us, that of 64 ranks 9 times.";
        again "16 MPI ranks on two processors.";
}

// Posts that wait for company.
constants! {
    BURST_MIN: u32 = 2, "posts between rounds";
        means "So many may wait for each other: the pieces of a message.";
        from "The pieces of a message are two or more. From 8 on alone, a stream of 64 B takes 1.16 times the instructions.";
        again "`osu_latency` over UCX, 8 KiB.";
    STREAM_MIN: u32 = 8, "posts between rounds";
        means "So many are a stream.";
        from "Chosen.";
        again "`ib_send_bw -s 64`.";
    ROUND_NS: u64 = 50_000, "ns";
        means "A program that streams runs a round this often while it posts: acknowledgements wait meanwhile.";
        from "Chosen.";
        again "`ib_write_bw -s 64 -q 64`.";
    IDLE_ROUNDS_PER_CLOCK: u32 = 8, "rounds";
        means "Of rounds with nothing to do, one in so many looks at the clock, and so at the timers.";
        from "Chosen.";
        again "`ib_send_lat -s 64`: instructions per message.";
    DISTRUST_MIN_NS: u64 = 2_000_000, "ns";
        means "How long nothing waits for company after a program posted and then did not poll, at first: it may have been kept from its processor.";
        from "Chosen.";
        again "`ib_send_bw -s 64` beside another busy process.";
    DISTRUST_MAX_NS: u64 = 1_000_000_000, "ns";
        means "The same if that happens again and again.";
        from "Chosen.";
        again "MPI ranks that compute between nonblocking sends.";
    PIECES_DISTRUST_MIN_NS: u64 = 50_000_000, "ns";
        means "The same for the pieces of a message, at first: a program that computes after each loses more by one wait than it gains.";
        from "Chosen.";
        again "MPI ranks that compute between messages of 8 KiB.";
    PIECES_DISTRUST_MAX_NS: u64 = 10_000_000_000, "ns";
        means "The same if that happens again and again.";
        from "Chosen.";
        again "MPI ranks that compute between messages of 8 KiB.";
}

// Completions that wait for a reply.
constants! {
    REPLIES_MIN: u32 = 2, "replies in a row";
        means "After so many that came soon, the completion of what was sent over a byte stream waits for the next reply, at first.";
        from "Chosen.";
        again "`urxe run --transport iwarp -- ib_write_lat -R -s 64`.";
    REPLIES_MAX: u32 = 1024, "replies in a row";
        means "The same after many waits in vain.";
        from "Chosen: waits in vain then take less than a microsecond of each message.";
        again "it is arithmetic.";
    REPLY_WAIT_NS: u64 = 200_000, "ns";
        means "How long a completion waits for a reply, and how soon one has to come to count.";
        from "Chosen: a round trip of 64 KiB, and less than a program that polls notices.";
        again "`urxe run --transport iwarp -- ib_write_lat -R -s 65536` with half and twice the value.";
    REPLY_OWED_NS: u64 = 50_000, "ns";
        means "How long a program may be about to reply to a message that came over a byte stream.";
        from "As long as an acknowledgement waits for the reply over RoCE (urxe_proto::ACK_HOLD_NS).";
        again "`urxe run --transport iwarp -- ib_send_lat -R -s 64` with half and twice the value.";
}

// What must hold between them.
const _: () = {
    assert!(
        LOOK_AGAIN_NS <= LOOK_AGAIN_POLLED_MAX_NS && LOOK_AGAIN_NS <= LOOK_AGAIN_BLOCKED_MAX_NS
    );
    assert!(BUSY_POLLS_MIN <= BUSY_POLLS && BUSY_WORK <= FULL_WORK);
    assert!(
        VIGILANCE_MIN_NS >= LOOK_AGAIN_POLLED_MAX_NS,
        "one sleep would outlast the vigilance"
    );
    assert!(PAUSE_MIN_NS << PAUSES_MAX >= PAUSE_MAX_NS && PAUSES_LONG < PAUSES_MAX);
    assert!(STOP_WEIGHT <= STOP_WEIGHT_MAX);
    assert!(STEP_ASIDE_AFTER_MAX_NS >= 1_000 * STEP_ASIDE_NS);
    assert!(
        LOOK_NS <= SHORT_SLEEP_NS,
        "a look longer than a short sleep never pays"
    );
    assert!(BURST_MIN <= STREAM_MIN);
    assert!(
        ROUND_NS < HELD_MAX_NS,
        "a stream would be found not to poll"
    );
    assert!(REPLIES_MIN <= REPLIES_MAX);
    assert!(
        REPLY_WAIT_NS < RECENT_NS,
        "a program that waits would be found not to poll"
    );
};
