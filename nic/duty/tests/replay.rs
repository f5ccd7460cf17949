//! What the background thread decided on real workloads, decided again: `traces/*.jsonl`, an event
//! and an act a line, as `URXE_LOG=trace` prints them with the target `urxe::duty`. A change of the
//! policy that changes a decision shows here which, and on what.

use std::fs;
use std::path::Path;

use urxe_duty::{Act, Background, Event};

#[test]
fn recorded_events_lead_to_the_recorded_acts() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces");
    let mut names: Vec<_> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    names.sort();
    assert!(names.len() >= 2, "the traces are gone");
    for name in names {
        let mut thread = Background::new();
        let text = fs::read_to_string(&name).unwrap();
        for (number, line) in text.lines().enumerate() {
            let (event, act): (Event, Act) = serde_json::from_str(line).unwrap();
            let place = format!("{}:{}: {event:?}", name.display(), number + 1);
            assert_eq!(thread.next(event), act, "{place}");
        }
        assert!(
            text.lines().count() > 100,
            "{} shows too little",
            name.display()
        );
    }
}
