//! The benchmark `mechanisms`: parts of the gateway that replace ordinary ones, beside those.
//!
//! It measures processor time per request and memory per waiting response, which a busy machine
//! changes little. Both variants take turns in short slices.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Uri};
use http_body_util::BodyExt as _;
use serde_json::json;
use steadfast_client::transport::Transport;
use tokio::time::Instant;

use super::measure::{Rounds, measure, median};
use super::peer::{Peer, processor_time};
use super::report;
use crate::serve::assembled::Sender;
use crate::{Error, load};

#[derive(Debug, Args)]
pub(crate) struct Mechanisms {
    #[command(flatten)]
    rounds: Rounds,
    /// Threads of the gateway.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Slices in which each transport sends requests.
    #[arg(long, default_value_t = 20)]
    slices: usize,
    /// Responses that a client waits for while its memory is measured.
    #[arg(long, default_value_t = 4000)]
    responses: usize,
}

const RUNTIME: &str = "one runtime";
const WORKERS: &str = "worker threads";
const SLICE: Duration = Duration::from_millis(500);
const CALL: &str =
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"tiny","arguments":{}}}"#;

pub(super) fn run(options: &Mechanisms) -> Result<(), Error> {
    let [own, hyper] = transports(options)?;
    let [own_memory, hyper_memory] = [Sender::Own, Sender::Hyper].map(|sender| memory(options, sender));
    let (own_memory, hyper_memory) = (own_memory?, hyper_memory?);
    let threads = options.threads.to_string();
    let gateway = |name, workers: &[&str]| {
        let args: Vec<&str> = ["assembled", "--threads", &threads].iter().chain(workers).copied().collect();
        Peer { upstream: Some(vec!["fast".to_owned()]), ..Peer::new(name, &args) }
    };
    let peers = [gateway(RUNTIME, &[]), gateway(WORKERS, &["--workers"])];
    let groups = measure(&peers, &[32], &options.rounds)?;
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "client: {own:.1} us of processor time per request, hyper's client {hyper:.1} us")?;
    writeln!(stdout, "client: {own_memory} bytes per waiting response, hyper's client {hyper_memory}")?;
    stdout.write_all(report::table(&groups, RUNTIME).as_bytes())?;
    let report = json!({
        "bench": "mechanisms",
        "client_cpu_us": own, "hyper_cpu_us": hyper,
        "client_bytes": own_memory, "hyper_bytes": hyper_memory,
        "threads": serde_json::from_str::<serde_json::Value>(
            &report::json("mechanisms", &options.rounds, &groups, RUNTIME)?
        )?,
    });
    writeln!(stdout, "{report}")?;
    Ok(())
}

/// Returns the processor time per request of our transport and of hyper's, in microseconds.
fn transports(options: &Mechanisms) -> Result<[f64; 2], Error> {
    let server = Peer::new("fast", &["fast"]).start()?;
    let url: Uri = server.url().parse()?;
    let senders = [Sender::Own, Sender::Hyper].map(Sender::transport);
    let mut samples = [Vec::new(), Vec::new()];
    load::runtime(1)?.block_on(async {
        // The first slice of each opens its connections and is not counted.
        for slice in 0..=options.slices {
            for (transport, samples) in senders.iter().zip(&mut samples) {
                let cost = slice_cost(transport, &url, options.rounds.connections).await?;
                samples.extend((slice > 0).then_some(cost));
            }
        }
        Ok::<_, Error>(())
    })?;
    let [own, hyper] = samples.map(|samples| median(samples.into_iter()));
    Ok([own.ok_or("no slices")?, hyper.ok_or("no slices")?])
}

/// Sends requests for one slice and returns the processor time of each.
async fn slice_cost(transport: &Arc<dyn Transport>, url: &Uri, connections: usize) -> Result<f64, Error> {
    let own_time = || processor_time(std::process::id()).ok_or("no processor time in /proc");
    let (end, before) = (Instant::now() + SLICE, own_time()?);
    let mut senders = tokio::task::JoinSet::new();
    for _ in 0..connections {
        let (transport, url) = (Arc::clone(transport), url.clone());
        senders.spawn(async move {
            let mut sent = 0u64;
            while Instant::now() < end {
                let mut request = Request::new(Bytes::from_static(CALL.as_bytes()));
                (*request.method_mut(), *request.uri_mut()) = (Method::POST, url.clone());
                let headers = request.headers_mut();
                headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
                transport.send(request).await?.into_body().collect().await?;
                sent += 1;
            }
            Ok::<u64, Error>(sent)
        });
    }
    let mut sent = 0;
    while let Some(ended) = senders.join_next().await {
        sent += ended??;
    }
    Ok((own_time()? - before).as_secs_f64() * 1e6 / sent as f64)
}

/// Returns the memory of a client per response that it waits for.
fn memory(options: &Mechanisms, sender: Sender) -> Result<u64, Error> {
    let resident = |responses: usize| {
        let (count, sender) = (responses.to_string(), format!("{sender:?}").to_lowercase());
        let args = ["waiting", "--sender", &sender, "--responses", &count];
        let peer = Peer { upstream: Some(vec!["fast".to_owned()]), ..Peer::new("waiting", &args) };
        peer.start()?.resident()
    };
    // The first responses cause one-time allocations.
    let few = options.responses / 10;
    let bytes = resident(options.responses)?.saturating_sub(resident(few)?);
    Ok(bytes / (options.responses - few) as u64)
}
