//! The benchmark `replay`: the speed of reading a long stream again, and the cost of attaching at
//! its start and at its end.

mod body;
mod events;
mod report;

use std::io::Write as _;
use std::time::Duration;

use clap::Args;
use tokio::time::{Instant, sleep};

use self::events::{Events, Seen};
use super::measure::median;
use super::peer::Peer;
use crate::load::target::Target;
use crate::{Error, load};

#[derive(Debug, Args)]
pub(crate) struct Replay {
    /// Events of the longest stream. The other two have a half and a quarter of its length.
    #[arg(long, default_value_t = 100_000)]
    events: u64,
    /// Bytes of text in each event.
    #[arg(long, default_value_t = 1000)]
    size: u64,
    /// How often each stream is read; medians are reported.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// How often a connection is attached at each position.
    #[arg(long, default_value_t = 200)]
    attaches: usize,
    /// Worker threads of each server.
    #[arg(long, default_value_t = 2)]
    threads: usize,
}

/// "At the end" means this many events before the end. They do not fit into the first piece of a
/// response, so the first piece is as long as at the start, and only the position differs.
const BEFORE_END: u64 = 1000;

/// The results for one store.
struct Outcome {
    name: &'static str,
    /// The target in MB/s.
    target: Option<f64>,
    lengths: Vec<Length>,
    attach: Attach,
}

/// The results for a stream of one length.
struct Length {
    events: u64,
    payload: u64,
    seconds: f64,
}

/// Microseconds to the first byte of the first event, by position.
struct Attach {
    at_start: f64,
    before_end: f64,
    /// Only the response is left to send.
    at_end: f64,
}

/// A stream with all its events.
struct Filled {
    events: u64,
    /// The id of the event before the first one.
    start: String,
}

pub(super) fn run(options: &Replay) -> Result<(), Error> {
    if options.events < 4 * BEFORE_END || options.rounds == 0 || options.attaches == 0 {
        return Err(format!("at least {} events, one round and one attach, please", 4 * BEFORE_END).into());
    }
    let threads = options.threads.to_string();
    let peer = |name, store| Peer::new(name, &["replay", "--store", store, "--threads", &threads]);
    let mut outcomes = Vec::new();
    for (peer, target) in [
        (peer("steadfast memory", "memory:"), Some(200.0)),
        (peer("steadfast sqlite", "sqlite:sessions.db"), None),
    ] {
        let (lengths, attach) = load::runtime(1)?.block_on(measure(&peer, options))?;
        outcomes.push(Outcome { name: peer.name, target, lengths, attach });
    }
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(report::table(&outcomes).as_bytes())?;
    writeln!(stdout, "{}", report::json(&outcomes))?;
    Ok(())
}

async fn measure(peer: &Peer, options: &Replay) -> Result<(Vec<Length>, Attach), Error> {
    let running = peer.start()?;
    let target = Target::parse(running.url())?;
    let session = target.open_session().await?;
    let mut streams = Vec::new();
    for part in [4, 2, 1] {
        streams.push(fill(&target, &session, options.events / part, options.size, peer.name).await?);
    }

    let mut samples = vec![Vec::new(); streams.len()];
    let mut payloads = vec![0; streams.len()];
    for round in 0..options.rounds {
        for (at, stream) in streams.iter().enumerate() {
            let start = Instant::now();
            let seen = replay(&target, &session, stream).await?;
            let seconds = start.elapsed().as_secs_f64();
            payloads[at] = seen.payload;
            samples[at].push(seconds);
            eprintln!(
                "{}: round {} of {}, {} events in {seconds:.3} s",
                peer.name,
                round + 1,
                options.rounds,
                stream.events
            );
        }
    }
    let mut lengths = Vec::new();
    for ((stream, samples), payload) in streams.iter().zip(samples).zip(payloads) {
        let seconds = median(samples.into_iter()).ok_or("no samples")?;
        lengths.push(Length { events: stream.events, payload, seconds });
    }
    let longest = streams.last().ok_or("no streams")?;
    let attach = attach(&target, &session, longest, options.attaches, peer.name).await?;
    Ok((lengths, attach))
}

/// Makes a call that fills its stream, and reads the stream as it grows.
async fn fill(target: &Target, session: &str, events: u64, size: u64, name: &str) -> Result<Filled, Error> {
    let call = format!(
        r#"{{"jsonrpc":"2.0","id":"{events}","method":"tools/call","params":{{"name":"fill","arguments":{{"events":{events},"size":{size}}}}}}}"#
    );
    let start = Instant::now();
    let stream = Events::send(target.connect().await?, &target.post(Some(session), &call), 0).await?;
    let seen = stream.finish().await?;
    complete(&seen, events)?;
    let seconds = start.elapsed().as_secs_f64();
    eprintln!("{name}: {events} events written and read as they came in {seconds:.1} s");
    Ok(Filled { events, start: seen.first_id.ok_or("a stream without a first event")? })
}

async fn replay(target: &Target, session: &str, stream: &Filled) -> Result<Seen, Error> {
    let request = target.resume(session, &stream.start);
    let seen = Events::send(target.connect().await?, &request, 0).await?.finish().await?;
    complete(&seen, stream.events)?;
    Ok(seen)
}

fn complete(seen: &Seen, events: u64) -> Result<(), Error> {
    if (seen.messages, seen.answers) == (events, 1) {
        return Ok(());
    }
    Err(format!("{} messages and {} answers instead of {events} and one", seen.messages, seen.answers).into())
}

async fn attach(
    target: &Target,
    session: &str,
    stream: &Filled,
    attaches: usize,
    name: &str,
) -> Result<Attach, Error> {
    let places = [0, stream.events - BEFORE_END, stream.events];
    let mut samples = [const { Vec::new() }; 3];
    for round in 0..attaches {
        // Each order is used equally often, so that the after-effects of a connection do not always
        // affect the same position.
        for turn in 0..places.len() {
            let at = if round % 2 == 0 { turn + round / 2 } else { places.len() - 1 - turn + round / 2 };
            let at = at % places.len();
            samples[at].push(first_byte(target, session, stream, places[at]).await?);
            // The server detects the end of the last connection.
            sleep(Duration::from_millis(2)).await;
        }
    }
    eprintln!("{name}: attached {attaches} times at each of {} places", places.len());
    let [at_start, before_end, at_end] =
        samples.map(|samples| median(samples.into_iter()).unwrap_or(f64::NAN));
    Ok(Attach { at_start, before_end, at_end })
}

/// Returns the microseconds from the request to the first byte of the first event after number
/// `after`.
async fn first_byte(target: &Target, session: &str, stream: &Filled, after: u64) -> Result<f64, Error> {
    let socket = target.connect().await?;
    let id = with_number(&stream.start, after).ok_or("an event id of another form")?;
    let request = target.resume(session, &id);
    let start = Instant::now();
    let mut events = Events::send(socket, &request, after).await?;
    events.first_byte().await?;
    Ok(start.elapsed().as_secs_f64() * 1e6)
}

/// Returns the id of another event of the same stream: `STREAM-NUMBER-SESSION`.
fn with_number(id: &str, number: u64) -> Option<String> {
    let (stream, rest) = id.split_once('-')?;
    let (_, session) = rest.split_once('-')?;
    Some(format!("{stream}-{number}-{session}"))
}
