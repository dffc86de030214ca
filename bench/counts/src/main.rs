//! The steps of every call, whose instructions `cargo xtask counts` counts.
//!
//! Valgrind runs this program once for each step and counts only inside functions called
//! `counted_…`, so the preparation is not counted. The load of the machine does not change the
//! number of instructions, so a change of a few per cent is visible, which seconds would not show.
//! The crate gungraun counts as well, but its runner has more than a hundred dependencies and takes
//! minutes to build. This program only needs valgrind.

#![forbid(unsafe_code)]

use std::hint::black_box;
use std::process::ExitCode;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use steadfast_session::command::{Append, AppendOutcome, Begin, Begun, Finish, Finished, Target};
use steadfast_session::{
    CallNo, Class, Command, Facts, NodeId, Outcome, Principal, Rules, SessionId, Step, Time,
};
use steadfast_store::{MemoryStore, Opened, Reply, Store};
use steadfast_wire::sse::encode;
use steadfast_wire::{Body, EventId, RequestId, Revision};

/// The allocator of the gateway and of the benchmarks. It is built with this program, so the counts
/// do not depend on the C library.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How often each step runs inside the counted function.
const TIMES: u64 = 1000;
const COUNTS: &[(&str, fn())] =
    &[("parse", parse), ("begin", begin), ("append", append), ("finish", finish), ("encode", encode)];

const NOW: Time = Time(1_700_000_000_000);
const SESSION: SessionId = SessionId::from_random([7; SessionId::BYTES]);
const CALL: &[u8] = br#"{"jsonrpc":"2.0","id":42,"method":"tools/call","params":{"name":"search","arguments":{"query":"cursors over a log","limit":10},"_meta":{"progressToken":"42"}}}"#;
const ANSWER: &[u8] = br#"{"jsonrpc":"2.0","id":42,"result":{"content":[{"type":"text","text":"A connection is a cursor."}],"isError":false}}"#;

fn main() -> ExitCode {
    let name = std::env::args().nth(1).unwrap_or_default();
    if let Some((_, count)) = COUNTS.iter().find(|(known, _)| *known == name) {
        count();
        return ExitCode::SUCCESS;
    }
    let names: Vec<_> = COUNTS.iter().map(|(name, _)| *name).collect();
    eprintln!("`cargo xtask counts` runs this under valgrind, with one of: {}", names.join(", "));
    ExitCode::FAILURE
}

fn parse() {
    let bodies: Vec<Vec<u8>> = (0..TIMES).map(|_| CALL.to_vec()).collect();
    counted_parse(&bodies);
}

fn begin() {
    let (store, mut outcomes) = (store(), room());
    counted_apply(&store, begins(), &mut outcomes);
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Begin(Begun::Begun { .. }))));
}

fn append() {
    let (store, mut outcomes) = (store(), room());
    outcomes.push(apply(&store, begin_one(0)));
    let commands = (0..TIMES).map(append_one).collect();
    outcomes.clear();
    counted_apply(&store, commands, &mut outcomes);
    assert!(
        outcomes.iter().all(|outcome| matches!(outcome, Outcome::Append(AppendOutcome::Appended { .. })))
    );
}

fn finish() {
    let (store, mut outcomes) = (store(), room());
    outcomes.extend(begins().into_iter().map(|command| apply(&store, command)));
    let commands = (0..TIMES).map(finish_one).collect();
    outcomes.clear();
    counted_apply(&store, commands, &mut outcomes);
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Finish(Finished::Finished { .. }))));
}

fn encode() {
    counted_encode(&mut Vec::with_capacity(1024), ANSWER);
}

// The counted functions. They contain no closures: valgrind finds functions by name, and the names
// of closures would match as well.

#[inline(never)]
fn counted_parse(bodies: &[Vec<u8>]) {
    for body in bodies {
        let parsed = Body::parse(black_box(body), 100);
        assert!(black_box(&parsed).is_ok());
    }
}

#[inline(never)]
fn counted_apply(store: &MemoryStore, commands: Vec<Command>, outcomes: &mut Vec<Outcome>) {
    for command in commands {
        outcomes.push(apply(store, command));
    }
}

#[inline(never)]
fn counted_encode(out: &mut Vec<u8>, payload: &[u8]) {
    for seq in 0..TIMES {
        out.clear();
        let id = EventId { stream: black_box(12), seq: 1000 + seq, tag: 0xbeef_cafe };
        encode::event(out, &id.text(), black_box(payload));
        black_box(&out);
    }
}

fn store() -> MemoryStore {
    let store = MemoryStore::new(Rules::default());
    let facts = Facts {
        id: SESSION,
        principal: Principal::anonymous(),
        revision: Revision::V2025_11_25,
        initialize: Bytes::from_static(b"{}"),
        opened_at: NOW,
    };
    let opened = ready(store.open(facts));
    assert!(matches!(opened, Opened::Opened(_)));
    store
}

fn room() -> Vec<Outcome> {
    Vec::with_capacity(TIMES as usize)
}

fn apply(store: &MemoryStore, command: Command) -> Outcome {
    ready(store.apply(SESSION, command, NOW))
}

/// Returns the result of the memory store, which never waits.
fn ready<T: Unpin>(mut reply: Reply<T>) -> T {
    match Future::poll(std::pin::Pin::new(&mut reply), &mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(outcome)) => outcome,
        Poll::Ready(Err(error)) => panic!("the memory store failed: {error}"),
        Poll::Pending => panic!("the memory store returned a pending future"),
    }
}

fn begins() -> Vec<Command> {
    (0..TIMES).map(begin_one).collect()
}

fn begin_one(number: u64) -> Command {
    Begin::local(NodeId(1), number, vec![RequestId::Number(number.cast_signed())]).into_command()
}

fn append_one(_: u64) -> Command {
    let payload = Bytes::from_static(ANSWER);
    Append { target: Target::Call(CallNo(0)), class: Class::Droppable, payload, fence: None }.into_command()
}

fn finish_one(number: u64) -> Command {
    Finish { call: CallNo(number), payload: Bytes::from_static(ANSWER) }.into_command()
}
